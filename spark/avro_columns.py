"""Decodes Avro values many at a time: one field of all values after the other, by numpy.

Avro has no marks between fields, so a value can only be read from its beginning. But where the next
field of each value begins can be kept for all values together: a `Cursor` is an array of places in
one buffer, and reading a field moves all of them. A schema is compiled once into functions that do
that and return Arrow's arrays (`columns_reader`).

What is read so: records, also inside records, of null, boolean, int, long, float, double, bytes,
string, enum, fixed, those with the logical types date, timestamp, local-timestamp and decimal, and
unions of these that all become the same type; into the types that the table at the end of this file
has for them. Arrays and maps are not: `NotColumnar`, and `avro_decoder.py` has fastavro read
such schemas value by value.

Bytes are a stranger's: no place goes beyond the end of its value, and no size is believed that
does. A value that is damaged stays at its end while the others go on. A field that is not asked for
is skipped without a look at what is in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from asyncbroker.spark.avro_marks import AS_DOUBLE, AS_FLOAT, AS_SYMBOL, CONSTANT, REFUSED
from asyncbroker.spark.fields import Integers, Spans
from asyncbroker.spark.record_columns import pieces_of

Mask = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]

PADDING_BYTES: Final = 16
"""So many bytes behind the last value may be looked at before it is known where it ends."""

_CONTINUED: Final = np.uint64(0x8080_8080_8080_8080)
_SEVEN_BITS: Final = np.uint64(0x7F7F_7F7F_7F7F_7F7F)
# What is in the odd pieces of 7, 14 and 28 bits, and by how much it lies too high.
_SQUEEZE: Final = (
    (np.uint64(0x7F00_7F00_7F00_7F00), np.uint64(0x007F_007F_007F_007F), np.uint64(1)),
    (np.uint64(0x3FFF_0000_3FFF_0000), np.uint64(0x0000_3FFF_0000_3FFF), np.uint64(2)),
    (np.uint64(0x0FFF_FFFF_0000_0000), np.uint64(0x0000_0000_0FFF_FFFF), np.uint64(4)),
)
_DAYS: Final = (-719162, 2932896)
"""The years 1 to 9999, which are those of Python and of SQL."""
_MICROSECONDS: Final = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_DIGITS_MAX: Final = 18
"""Of decimals that fit into 64 bits; others are left to fastavro."""


class NotColumnar(Exception):
    """The schema, or what is to become of it, is not in the tables of this file."""


@dataclass(slots=True)
class Cursor:
    """The place in each of many values at which it is read next; `data` is padded."""

    data: npt.NDArray[np.uint8]
    position: Integers
    end: Integers
    damaged: Mask
    # Read in order, but not here: fastavro has to look at it.
    undecided: Mask

    @classmethod
    def over(cls, data: npt.NDArray[np.uint8], start: Integers, end: Integers) -> Cursor:
        count = len(start)
        return cls(data, start, end, np.zeros(count, np.bool_), np.zeros(count, np.bool_))

    def some(self, places: Integers) -> Cursor:
        """One over the values at `places`, which `take_back` makes known here."""
        return Cursor.over(self.data, self.position[places], self.end[places])

    def take_back(self, some: Cursor, places: Integers) -> None:
        self.position = self.position.copy()
        self.position[places] = some.position
        self.damaged[places] |= some.damaged
        self.undecided[places] |= some.undecided

    def refuse(self, bad: Mask) -> None:
        """Says of values that they are damaged; they end here."""
        if bad.any():
            self.damaged |= bad
            self.position = np.where(bad, self.end, self.position)

    def skip(self, sizes: Integers | int) -> Integers:
        """Goes on by so many bytes; returns where they begin."""
        bad = (sizes > self.end - self.position) | np.less(sizes, 0)
        self.refuse(bad)
        starts = self.position
        self.position = starts + np.where(bad, 0, sizes)
        return starts

    def numbers(self, kind: str) -> npt.NDArray[Any]:
        """Little-endian numbers of a fixed size."""
        size = np.dtype(kind).itemsize
        return self._at(kind, self.skip(size))

    def longs(self) -> Integers:
        """Numbers as Avro has them: zigzag, seven bits a byte, the lowest first."""
        first = self.data[self.position]
        if not (first & 0x80).any():
            self.skip(1)
            return _unzigzag(first.astype(np.uint64))
        words: Words = self._at("<u8", self.position)
        stops = ~words & _CONTINUED
        stop = stops & (~stops + np.uint64(1))
        bits = words & (stop | (stop - np.uint64(1))) & _SEVEN_BITS
        for high, low, shift in _SQUEEZE:
            bits = (bits & high) >> shift | bits & low
        # The exponent of a power of two as a float says which one it is.
        sizes: Integers = ((stop.astype(np.float64).view(np.int64) >> 52) - 1022) >> 3
        if not stops.all():
            self._finish_long_ones(np.flatnonzero(stops == 0), bits, sizes)
        self.skip(sizes)
        return _unzigzag(bits)

    def _finish_long_ones(self, places: Integers, bits: Words, sizes: Integers) -> None:
        """Numbers of nine bytes and ten, of which `bits` has the first eight. Ten are 70 bits."""
        ninth = self.data[self.position[places] + 8]
        tenth = np.where(ninth & 0x80, self.data[self.position[places] + 9], 0)
        bits[places] |= (ninth & 0x7F).astype(np.uint64) << np.uint64(56)
        bits[places] |= tenth.astype(np.uint64) << np.uint64(63)
        sizes[places] = np.where(ninth & 0x80, 10, 9)
        too_long = np.zeros(len(sizes), np.bool_)
        too_long[places] = tenth > 1
        self.refuse(too_long)

    def _at(self, kind: str, starts: Integers) -> npt.NDArray[Any]:
        size = np.dtype(kind).itemsize
        overlapping = np.ndarray(
            (len(self.data) - size + 1,), kind, self.data, strides=(self.data.itemsize,)
        )
        return overlapping[starts]


def _unzigzag(bits: Words) -> Integers:
    one = np.uint64(1)
    return ((bits >> one) ^ (~(bits & one) + one)).view(np.int64)


Reader = Callable[[Cursor], "pa.Array | None"]
"""Reads a field of all values; returns None for one that is only skipped."""


def columns_reader(schema: Any, wanted: pa.Schema) -> Callable[[Cursor], dict[str, pa.Array]]:
    """What reads whole values, records by the parsed `schema`, into the fields of `wanted` by name.
    Values with bytes left over are damaged too. Raises NotColumnar."""
    if not isinstance(schema, dict) or schema["type"] != "record":
        raise NotColumnar(f"{schema} is no record")
    read_fields = _Compiler().fields(schema, pa.struct(list(wanted)))

    def read(cursor: Cursor) -> dict[str, pa.Array]:
        columns = read_fields(cursor)
        cursor.refuse(cursor.position < cursor.end)
        return columns

    return read


class _Compiler:
    """Makes readers of a schema's parts, in the order in which they are written, so that a name is
    known before it is used."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._open: list[str] = []

    def fields(self, schema: Any, kind: pa.StructType) -> Callable[[Cursor], dict[str, pa.Array]]:
        """What reads a record's fields into those of `kind`; those that it lacks are null."""
        names = [field.name for field in kind]
        if len(set(names)) < len(names) or schema["name"] in self._open:
            raise NotColumnar("a field twice, or a record inside itself")
        self._named[schema["name"]] = schema
        self._open.append(schema["name"])
        wanted = {field.name: field.type for field in kind}
        readers = [
            (field["name"], self.reader(field["type"], wanted.get(field["name"])))
            for field in schema["fields"]
        ]
        self._open.pop()
        missing = [field for field in kind if field.name not in {name for name, _ in readers}]

        def read(cursor: Cursor) -> dict[str, pa.Array]:
            columns = {name: read_one(cursor) for name, read_one in readers}
            for field in missing:
                columns[field.name] = pa.nulls(len(cursor.position), field.type)
            return {name: columns[name] for name in names}

        return read

    def reader(self, schema: Any, kind: pa.DataType | None) -> Reader:
        """What reads a field into that type, or skips it if that is None."""
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        if isinstance(schema, list):
            return self._union(schema, kind)
        if isinstance(schema, str):
            schema = {"type": schema}
        if not isinstance(schema["type"], str):
            return self.reader(schema["type"], kind)
        if schema["type"] in ("fixed", "enum"):
            self._named[schema["name"]] = schema
        if schema["type"] == "record":
            return self._record(schema, kind)
        return _plain_reader(schema, kind)

    def _record(self, schema: Any, kind: pa.DataType | None) -> Reader:
        if kind is None:
            skip_fields = self.fields(schema, pa.struct([]))

            def skip(cursor: Cursor) -> None:
                skip_fields(cursor)

            return skip
        if not pa.types.is_struct(kind):
            raise NotColumnar(f"a record as {kind}")
        if not len(kind):
            raise NotColumnar("a struct without fields")
        read_fields = self.fields(schema, kind)
        return lambda cursor: pa.StructArray.from_arrays(
            list(read_fields(cursor).values()), fields=list(kind)
        )

    def _union(self, schema: list[Any], kind: pa.DataType | None) -> Reader:
        """Each type of the union is read into the same type, or skipped."""
        readers = [
            (place, self.reader(part, kind)) for place, part in enumerate(schema) if part != "null"
        ]
        if not readers:
            raise NotColumnar("a union of nothing but null")

        def read_union(cursor: Cursor) -> pa.Array | None:
            chosen = cursor.longs()
            cursor.refuse((chosen < 0) | (chosen >= len(schema)))
            count = len(chosen)
            arrays: list[pa.Array | None] = []
            found: list[Integers] = []
            for place, read in readers:
                places = np.flatnonzero((chosen == place) & ~cursor.damaged)
                if len(places) == count:
                    return read(cursor)
                if len(places):
                    some = cursor.some(places)
                    arrays.append(read(some))
                    found.append(places)
                    cursor.take_back(some, places)
            if kind is None:
                return None
            if not arrays:
                return pa.nulls(count, kind)
            if len(arrays) == 1:
                return spread(arrays[0], found[0], count)
            return spread(pa.concat_arrays(arrays), np.concatenate(found), count)

        return read_union


def spread(array: pa.Array, places: Integers, count: int) -> pa.Array:
    """The array with its items at `places` among `count`, the others null."""
    indexes = np.full(count, -1, np.int64)
    indexes[places] = np.arange(len(places))
    return array.take(pa.array(indexes, mask=indexes < 0))


# ---- types that hold no others


def _plain_reader(schema: Any, kind: pa.DataType | None) -> Reader:
    form, logical = schema["type"], schema.get("logicalType")
    if logical == REFUSED:
        return _refusing(kind)
    if kind is None:
        return _skipper(schema)
    if logical == CONSTANT:
        column = schema["column"]
        return lambda cursor: pa.repeat(column[0], len(cursor.position))
    make = _READERS.get((form, logical, _kind_name(kind)))
    if make is None:
        raise NotColumnar(f"{form} {logical or ''} as {kind}")
    made: Reader = make(schema, kind)
    return made


def _kind_name(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "timestamp"
    return "decimal" if pa.types.is_decimal(kind) else str(kind)


def _skipper(schema: Any) -> Reader:
    skip = _SKIPPERS.get(schema["type"])
    if skip is None:
        raise NotColumnar(f"{schema['type']}")

    def read(cursor: Cursor) -> None:
        skip(cursor, schema)

    return read


_SKIPPERS: Final[dict[str, Callable[[Cursor, Any], object]]] = {
    "null": lambda cursor, schema: None,
    "boolean": lambda cursor, schema: cursor.skip(1),
    "int": lambda cursor, schema: cursor.longs(),
    "long": lambda cursor, schema: cursor.longs(),
    "enum": lambda cursor, schema: cursor.longs(),
    "float": lambda cursor, schema: cursor.skip(4),
    "double": lambda cursor, schema: cursor.skip(8),
    "bytes": lambda cursor, schema: cursor.skip(cursor.longs()),
    "string": lambda cursor, schema: cursor.skip(cursor.longs()),
    "fixed": lambda cursor, schema: cursor.skip(schema["size"]),
}


def _refusing(kind: pa.DataType | None) -> Reader:
    def read(cursor: Cursor) -> pa.Array | None:
        count = len(cursor.position)
        cursor.refuse(np.ones(count, np.bool_))
        return None if kind is None else pa.nulls(count, kind)

    return read


def _nulls(schema: Any, kind: pa.DataType) -> Reader:
    return lambda cursor: pa.nulls(len(cursor.position), kind)


def _booleans(schema: Any, kind: pa.DataType) -> Reader:
    return lambda cursor: pa.array(cursor.numbers("u1") != 0)


def _longs(smallest: int, largest: int, store: str, factor: int = 1) -> Any:
    """A maker of readers of whole numbers within limits, stored as `store`, `factor` times."""

    def make(schema: Any, kind: pa.DataType) -> Reader:
        def read(cursor: Cursor) -> pa.Array:
            numbers = cursor.longs()
            bad = (numbers < smallest) | (numbers > largest)
            if bad.any():
                cursor.refuse(bad)
                numbers = np.where(bad, 0, numbers)
            if factor != 1:
                numbers = numbers * factor
            return pa.array(numbers.astype(store, copy=False)).view(kind)

        return read

    return make


def _rounded(stored: str) -> Any:
    """A maker of readers of whole numbers as the floats that are next to them."""

    def make(schema: Any, kind: pa.DataType) -> Reader:
        found = kind.to_pandas_dtype()
        return lambda cursor: pa.array(cursor.longs().astype(stored).astype(found))

    return make


def _floats(stored: str) -> Any:
    def make(schema: Any, kind: pa.DataType) -> Reader:
        def read(cursor: Cursor) -> pa.Array:
            numbers = cursor.numbers(stored)
            with np.errstate(over="ignore", invalid="ignore"):
                found = numbers.astype(kind.to_pandas_dtype())
            # A double too large for a float is not one without an end.
            if found.itemsize < numbers.itemsize:
                cursor.refuse(np.isinf(found) & ~np.isinf(numbers))
            return pa.array(found)

        return read

    return make


def _spans(cursor: Cursor, schema: Any) -> Spans:
    sizes = schema["size"] if schema["type"] == "fixed" else cursor.longs()
    starts = cursor.skip(sizes)
    return Spans(starts, cursor.position - starts)


def _binaries(schema: Any, kind: pa.DataType) -> Reader:
    return lambda cursor: pieces_of(pa.py_buffer(cursor.data), _spans(cursor, schema))


def _strings(schema: Any, kind: pa.DataType) -> Reader:
    def read(cursor: Cursor) -> pa.Array:
        pieces = pieces_of(pa.py_buffer(cursor.data), _spans(cursor, schema))
        try:
            return pieces.cast(pa.string()).cast(kind)
        except pa.ArrowInvalid:
            bad = np.fromiter(map(_is_no_text, pieces.to_pylist()), np.bool_, len(pieces))
        cursor.refuse(bad)
        good = np.flatnonzero(~bad)
        return spread(pieces.take(pa.array(good)).cast(pa.string()).cast(kind), good, len(bad))

    return read


def _is_no_text(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return True
    return False


def _symbols(schema: Any, kind: pa.DataType) -> Reader:
    becomes = schema.get("becomes", {})
    symbols = pa.array([becomes.get(one, one) for one in schema["symbols"]], pa.string())

    def read(cursor: Cursor) -> pa.Array:
        chosen = cursor.longs()
        bad = (chosen < 0) | (chosen >= len(symbols))
        cursor.refuse(bad)
        return symbols.take(pa.array(chosen, mask=bad))

    return read


def _decimals(schema: Any, kind: pa.DataType) -> Reader:
    """Of those that have 18 digits at most."""
    if schema.get("scale", 0) != kind.scale:
        raise NotColumnar("a decimal of another scale")
    limit = 10 ** min(schema["precision"], kind.precision, _DIGITS_MAX)

    def read(cursor: Cursor) -> pa.Array:
        spans = _spans(cursor, schema)
        numbers, fit = _big_endian(cursor.data, spans)
        fit &= (numbers > -limit) & (numbers < limit)
        cursor.undecided |= ~fit & ~cursor.damaged
        words = np.empty((len(numbers), 2), np.int64)
        words[:, 0] = np.where(fit, numbers, 0)
        words[:, 1] = words[:, 0] >> 63
        return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(words)])

    return read


def _big_endian(data: npt.NDArray[np.uint8], spans: Spans) -> tuple[Integers, Mask]:
    """Signed numbers, and which of them are right: those of 1 to 16 bytes that fit into 8."""
    numbers = np.zeros(len(spans.sizes), np.int64)
    fit = (spans.sizes >= 1) & (spans.sizes <= 16)
    for size in np.unique(spans.sizes[fit]).tolist():
        places = np.flatnonzero(spans.sizes == size)
        starts = spans.starts[places]
        found = data[starts].view(np.int8).astype(np.int64)
        for byte in range(1, size):
            if byte >= 8:
                fit[places] &= (found >= -(1 << 55)) & (found < 1 << 55)
            found = found << 8 | data[starts + byte]
        numbers[places] = found
    return numbers, fit


def _table() -> dict[tuple[str, str | None, str], Any]:
    """What makes a reader of an Avro type with a logical type into a type of Arrow's."""
    table: dict[tuple[str, str | None, str], Any] = {
        ("boolean", None, "bool"): _booleans,
        ("int", "date", "date32[day]"): _longs(*_DAYS, "i4"),
        ("fixed", None, "binary"): _binaries,
        ("bytes", None, "binary"): _binaries,
        ("bytes", None, "string"): _strings,
        ("string", None, "string"): _strings,
        ("string", None, "binary"): _strings,
        ("enum", None, "string"): _symbols,
        ("enum", AS_SYMBOL, "string"): _symbols,
        ("bytes", "decimal", "decimal"): _decimals,
        ("fixed", "decimal", "decimal"): _decimals,
    }
    for form in ("int", "long"):
        for bits in (8, 16, 32, 64):
            limit = 1 << bits - 1
            table[form, None, f"int{bits}"] = _longs(-limit, limit - 1, f"i{bits // 8}")
        table[form, None, "timestamp"] = table[form, None, "int64"]
        table[form, None, "double"] = _longs(-(1 << 53), 1 << 53, "f8")
        for name in ("float", "double"):
            table[form, AS_FLOAT, name] = _rounded("f4")
            table[form, AS_DOUBLE, name] = _rounded("f8")
    for kind in ("float", "double"):
        table["float", None, kind] = _floats("<f4")
        table["double", None, kind] = _floats("<f8")
    for name in ("timestamp", "local-timestamp"):
        first, last = _MICROSECONDS
        table["long", f"{name}-micros", "timestamp"] = _longs(first, last, "i8")
        table["long", f"{name}-millis", "timestamp"] = _longs(
            first // 1000, last // 1000, "i8", 1000
        )
    kinds = {name for _, _, name in table}
    return table | {("null", None, name): _nulls for name in kinds}


_READERS: Final = _table()
