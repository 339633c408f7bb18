"""The demos' pictures: delay by carrier and hour, or by airport and week, and who owned which
partition over time."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import pandas

from asyncbroker.demo.generations import Generation


def draw_delays(delays: pandas.DataFrame, path: Path) -> None:
    """A heat map of the mean departure delay in minutes."""
    grid = delays.pivot(index="carrier", columns="hour", values="delay").astype(float)
    figure, axes = plt.subplots(figsize=(11, 6))
    image = axes.imshow(grid.to_numpy(), aspect="auto", cmap="RdYlGn_r", vmin=-5, vmax=40)
    axes.set_xticks(range(len(grid.columns)), [f"{hour}:00" for hour in grid.columns], rotation=45)
    axes.set_yticks(range(len(grid.index)), grid.index)
    axes.set_xlabel("scheduled departure")
    axes.set_ylabel("carrier")
    axes.set_title("Mean departure delay, flights out of New York, 2013 (read by Spark)")
    figure.colorbar(image, label="minutes")
    save(figure, path)


def draw_weeks(delays: pandas.DataFrame, path: Path) -> None:
    """The mean delay of each week by airport."""
    figure, axes = plt.subplots(figsize=(11, 5))
    for origin, rows in delays.groupby("origin"):
        weighted = rows.assign(minutes=rows["delay"].astype(float) * rows["flown"])
        weeks = weighted.set_index("start")[["minutes", "flown"]].resample("W").sum()
        axes.plot(weeks.index, weeks["minutes"] / weeks["flown"], label=origin)
    axes.set_ylabel("mean departure delay, minutes")
    axes.set_title("Delays by airport, flights out of New York, 2013 (streamed by Spark)")
    axes.legend()
    save(figure, path)


def draw_ownership(
    generations: list[Generation],
    events: list[tuple[float, str]],
    end: float,
    partition_count: int,
    path: Path,
) -> None:
    """A bar for each partition, coloured by its owner; a line for each thing that happened."""
    start = min([generations[0].at, *(at for at, _ in events)])
    members = sorted({member for generation in generations for member in generation.owners})
    colours = {member: f"C{number}" for number, member in enumerate(members)}
    figure, axes = plt.subplots(figsize=(11, 5))
    ends = [generation.at for generation in generations[1:]] + [end]
    for generation, until in zip(generations, ends, strict=True):
        for member, partitions in generation.owners.items():
            for partition in partitions:
                axes.barh(
                    partition,
                    until - generation.at,
                    left=generation.at - start,
                    color=colours[member],
                    edgecolor="white",
                )
        axes.text(generation.at - start, partition_count - 0.4, f" {generation.number}", fontsize=8)
    for at, what in events:
        axes.axvline(at - start, color="black", linestyle=":", linewidth=1)
        axes.text(at - start, -0.6, what, rotation=20, fontsize=8, ha="left", va="bottom")
    handles = [plt.Rectangle((0, 0), 1, 1, color=colours[member]) for member in members]
    axes.legend(handles, members, loc="upper left", bbox_to_anchor=(1, 1))
    axes.set_ylim(partition_count, -1.5)
    axes.set_yticks(range(partition_count))
    axes.set_xlabel("seconds")
    axes.set_ylabel("partition")
    axes.set_title("Who owned which partition (the numbers are generations)")
    save(figure, path)


def save(figure: plt.Figure, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
