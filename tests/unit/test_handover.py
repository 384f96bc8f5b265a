"""Results of other threads on their way to the event loop."""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor

from api.handover import Handover
from core.errors import Unavailable


def test_each_who_waits_gets_the_own_result_or_error() -> None:
    async def wait() -> list[int | BaseException]:
        handover = Handover()
        futures: list[Future[int]] = [Future() for _ in range(500)]
        waiting = [handover.result_of(future) for future in futures]

        def finish(future: Future[int], n: int) -> None:
            if n % 7:
                future.set_result(n)
            else:
                future.set_exception(Unavailable(str(n)))

        with ThreadPoolExecutor(4) as threads:
            for n, future in enumerate(futures):
                threads.submit(finish, future, n)
            return await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10)

    for n, result in enumerate(asyncio.run(wait())):
        assert result == n if n % 7 else isinstance(result, Unavailable) and result.detail == str(n)


def test_who_gave_up_keeps_nothing_from_the_others() -> None:
    async def wait() -> int:
        handover = Handover()
        given_up, kept = Future[int](), Future[int]()
        gone = handover.result_of(given_up)
        waiting = handover.result_of(kept)
        gone.cancel()
        given_up.set_result(1)
        kept.set_result(2)
        assert not given_up.cancelled()
        return await asyncio.wait_for(waiting, 10)

    assert asyncio.run(wait()) == 2


def test_a_result_after_the_end_of_the_loop_harms_nobody() -> None:
    future: Future[int] = Future()

    async def leave() -> None:
        Handover().result_of(future)

    asyncio.run(leave())
    future.set_result(1)
    assert future.result() == 1
