"""The compiled parts, which pyproject.toml cannot describe; all else is there.

Two extensions, in C and without libraries: `asyncbroker.protocol._records`, and on Linux
`asyncbroker.log._writer`. Both are optional: where there is no compiler the install succeeds
without them, and Python does their work. From Python 3.11 on they use the stable ABI, of which
buffers are no part before: one wheel serves all later versions.
"""

import sys
import sysconfig
from glob import glob

from setuptools import Extension, setup

has_stable_abi = sys.version_info >= (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED")


def extension(name: str, *sources: str, headers: tuple[str, ...] = ()) -> Extension:
    return Extension(
        name,
        list(sources),
        depends=list(headers),
        define_macros=[("Py_LIMITED_API", "0x030B0000")] if has_stable_abi else [],
        extra_compile_args=[] if sys.platform == "win32" else ["-O3"],
        py_limited_api=has_stable_abi,
        optional=True,
    )


extensions = [
    extension(
        "asyncbroker.protocol._records",
        *sorted(glob("protocol/_records*.c")),
        headers=tuple(sorted(glob("protocol/_records*.h"))),
    )
]
if sys.platform == "linux":
    extensions.append(extension("asyncbroker.log._writer", "asyncbroker/log/_writer.c"))

setup(
    ext_modules=extensions,
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if has_stable_abi else {},
)
