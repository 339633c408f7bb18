"""Jobs in threads, and the stand-in that runs them at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from asyncbroker.workers import InlineWorkers, ThreadWorkers


async def test_a_job_runs_in_another_thread_and_its_result_comes_back() -> None:
    workers = ThreadWorkers(asyncio.get_running_loop(), threads_max=2)
    assert await workers.run(lambda a, b: (a + b, threading.current_thread()), 1, 2) != (
        3,
        threading.current_thread(),
    )
    await workers.close()


async def test_an_exception_of_a_job_comes_back_and_the_thread_lives_on() -> None:
    workers = ThreadWorkers(asyncio.get_running_loop(), threads_max=1)
    with pytest.raises(ZeroDivisionError):
        await workers.run(lambda: 1 / 0)
    assert await workers.run(lambda: "alive") == "alive"
    await workers.close()


async def test_a_job_that_raises_what_no_future_takes_ends_its_wait_all_the_same() -> None:
    workers = ThreadWorkers(asyncio.get_running_loop(), threads_max=1)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(workers.run(next, iter(())), 30)
    await workers.close()


async def test_jobs_run_side_by_side_up_to_the_number_of_threads() -> None:
    workers = ThreadWorkers(asyncio.get_running_loop(), threads_max=3)
    together = threading.Barrier(3, timeout=30)
    places = await asyncio.gather(*(workers.run(together.wait) for _ in range(3)))
    assert sorted(places) == [0, 1, 2]
    await workers.close()


async def test_no_thread_is_started_before_there_is_a_job_for_it() -> None:
    workers = ThreadWorkers(asyncio.get_running_loop(), threads_max=8)
    before = threading.active_count()
    for _ in range(5):
        await workers.run(lambda: None)
    assert threading.active_count() == before + 1
    await workers.close()
    assert threading.active_count() == before


async def test_closing_waits_for_jobs_and_refuses_new_ones() -> None:
    workers = ThreadWorkers(asyncio.get_running_loop(), threads_max=1)
    may_end = threading.Event()
    job = workers.run(may_end.wait, 30)
    closing = asyncio.ensure_future(workers.close())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError):
        workers.run(print)
    assert not closing.done()
    may_end.set()
    await closing
    assert job.result() is True


async def test_a_cancelled_wait_neither_stops_the_job_nor_breaks_the_thread() -> None:
    workers = ThreadWorkers(asyncio.get_running_loop(), threads_max=1)
    may_end = threading.Event()
    ran: list[str] = []

    def job() -> None:
        may_end.wait(30)
        ran.append("ran")

    workers.run(job).cancel()
    may_end.set()
    await workers.close()
    assert ran == ["ran"]


@pytest.mark.parametrize("job", [lambda: "done", lambda: 1 / 0], ids=["result", "exception"])
async def test_inline_jobs_are_over_when_run_returns(job: Callable[[], object]) -> None:
    future = InlineWorkers().run(job)
    assert future.done()
    if future.exception() is None:
        assert future.result() == "done"
    else:
        assert isinstance(future.exception(), ZeroDivisionError)


async def test_where_there_are_no_more_threads_jobs_wait_for_those_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    workers = ThreadWorkers(asyncio.get_running_loop(), threads_max=3)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OSError, match="can't start new thread"):
            await workers.run(lambda: None)
    may_end = threading.Event()
    first = workers.run(may_end.wait, 30)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        others = [workers.run(lambda: "done") for _ in range(3)]
        may_end.set()
        assert await first
        assert [await other for other in others] == ["done"] * 3
    # None of it is waited for that never began.
    await workers.close()
