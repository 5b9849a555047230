"""Refusals under overload, on a simulated clock: no test takes the time that it simulates."""

import asyncio
import heapq
import random
import unittest
import unittest.mock

from harness import WANTED, is_there, skip_without

if all(map(is_there, WANTED)):
    from lenslet.serve.forecast import Forecast
    from lenslet.serve.protocol import RequestError
    from lenslet.serve.turns import AHEAD, SECONDS, Turns

#: Maximum number of images in a run.
MOST = 8


class Simulated:
    """Random arrivals for `runners`, whose runs of n images take about `begin + n * each` seconds. `times` are those of
    accepted requests."""

    def __init__(self, runners, begin, each, seed=1):
        self.runners, self.begin, self.each = runners, begin, each
        self.draw = random.Random(seed)
        self.forecast = Forecast(runners, {"m": MOST})
        self.now, self.waiting, self.ends, self.done = 0.0, [], [], 0
        self.rate = runners * MOST / (begin + each * MOST)  # its capacity

    def load(self, part, count, slower=1.0, least=0.002):
        """(p99 of accepted requests, share of refused ones, images a second)"""
        self.times, refused, began, done = [], 0, self.now, self.done
        coming = self.now + self.draw.expovariate(part * self.rate)
        left = count
        while left:
            if not self.ends or coming <= self.ends[0][0]:
                self.now = coming
                coming += self.draw.expovariate(part * self.rate)
                left -= 1
                refused += not self.ask(least)
            else:
                self.now, _, rows, seconds, _ = heapq.heappop(self.ends)
                self.forecast.ran("m", rows, seconds)
                self.done += rows
            while len(self.ends) < self.runners and self.waiting:
                self.run(slower)
        self.times.sort()
        return (self.times[len(self.times) * 99 // 100], refused / count, (self.done - done) / (self.now - began))

    def ask(self, least):
        if len(self.ends) == self.runners and self.waiting:  # otherwise it is the next
            running = [("m", expected) for *_, expected in self.ends]
            if self.forecast.too_long("m", self.now, running, {"m": len(self.waiting)}, least):
                return False
        self.waiting.append(self.now)
        return True

    def run(self, slower):
        jobs, self.waiting = self.waiting[:MOST], self.waiting[MOST:]
        seconds = (self.begin + self.each * len(jobs)) * slower * self.draw.uniform(0.95, 1.05)
        self.times += [self.now + seconds - since for since in jobs]
        expected = self.now + self.forecast.run("m", len(jobs))
        heapq.heappush(self.ends, (self.now + seconds, self.draw.random(), len(jobs), seconds, expected))


@skip_without()
class Overload(unittest.TestCase):
    def test_at_twice_the_load_it_takes_as_long_as_at_nine_tenths(self):
        """Within three tenths, even if runs take a fifth longer under overload, as refusals use processors."""
        for runners, begin, each in ((1, 0, 6e-3), (2, 0, 6e-3), (4, 0, 6e-3), (16, 0, 4e-3), (2, 0, 60e-3), (1, 8e-3, 2e-3),
                                     (1, 2e-3, 5e-4)):  # fmt: skip
            for slower in (1.0, 1.2):
                with self.subTest(runners=runners, begin=begin, each=each, slower=slower):
                    simulated = Simulated(runners, begin, each)
                    usual, refused, _ = simulated.load(0.9, 30000)
                    crowded, _, rate = simulated.load(2.0, 30000, slower)
                    self.assertLessEqual(crowded, 1.3 * usual)
                    self.assertLessEqual(refused, 0.03)
                    self.assertGreaterEqual(rate * slower, 0.95 * simulated.rate)

    def test_nobody_is_refused_who_waits_less_than_he_may(self):
        simulated = Simulated(1, 0, 1e-4)
        for _ in range(50):  # the time of a run is known
            simulated.forecast.ran("m", MOST, 8e-4)
        running = [("m", 8e-4)]
        self.assertEqual(simulated.forecast.too_long("m", 0.0, running, {"m": 30}, 0.005), 0)
        self.assertAlmostEqual(simulated.forecast.too_long("m", 0.0, running, {"m": 30}, 0.002), 8e-4 + 3 * 8e-4 + 6e-4)

    def test_a_slow_model_is_waited_for(self):
        """A request for a fast model is not refused because the runners are busy with a slow one."""
        forecast = Forecast(1, {"slow": MOST, "fast": MOST})
        forecast.ran("slow", MOST, 0.5)
        forecast.ran("fast", MOST, 0.001)
        self.assertEqual(forecast.too_long("fast", 0.0, [("slow", 0.5)], {"slow": 0, "fast": 8}, 0.005), 0)
        self.assertGreater(forecast.too_long("fast", 0.0, [("slow", 0.5)], {"slow": 8, "fast": 8}, 0.005), 1)


@skip_without()
class TurnsOfTheLoop(unittest.TestCase):
    def setUp(self):
        self.loop = asyncio.SelectorEventLoop()
        self.addCleanup(self.loop.close)
        self.now = 100.0
        self.loop.time = lambda: self.now

    def come(self, turns, count):
        """The order in which `count` requests of 0.4 ms had turns, and the longest time without one for others."""
        begun, between, longest = [], self.now, 0.0

        def other(left=1000):  # like reading; the test fails if it runs to the end
            nonlocal between, longest
            longest, between = max(longest, self.now - between), self.now
            if not left:
                self.loop.stop()
            elif len(begun) < count:
                self.loop.call_soon(other, left - 1)

        async def request(number):
            turns.add()
            await turns.come()
            turns.ready -= 1
            begun.append(number)
            self.now += 0.0004

        async def all_of_them():
            self.loop.call_soon(other)
            await asyncio.gather(*map(request, range(count)))

        self.loop.run_until_complete(all_of_them())
        return begun, longest

    def test_connections_are_read_between_them(self):
        turns = Turns(self.loop, 0)
        for count in (40, 1, 2, 3, 4, 7, 100, 64, 5, 1, 40):  # at first their time is not known
            begun, longest = self.come(turns, count)
            self.assertEqual((begun, turns.ready), (list(range(count)), 0))
            self.assertLessEqual(longest, 2 * SECONDS + 2 * 0.0004)

    def test_who_would_wait_too_long_is_refused(self):
        """Twice the loop's capacity arrives: half of that excess is refused, and the loop does nothing else."""
        for least, refuses in ((0.01, True), (0, False)):
            turns, waited, refused, came = Turns(self.loop, least), [], 0, 0
            tasks, began = set(), self.now

            async def request(since):
                await turns.come()
                turns.ready -= 1
                self.now += 0.0004
                waited.append(self.now - since)

            def connections():
                nonlocal came, refused
                while began + came / 4000 < self.now:  # a quarter of a millisecond apart; reading each takes a tenth
                    came += 1
                    self.now += 0.0001
                    try:
                        turns.add()
                    except RequestError as error:
                        self.assertRegex(str(error), r"^some 1\d ms to wait for a turn: try again later$")
                        refused += 1
                        continue
                    tasks.add(self.loop.create_task(request(self.now)))
                if came < 8000:
                    self.now += 0.00001
                    self.loop.call_soon(connections)
                else:
                    self.loop.stop()

            self.loop.call_soon(connections)
            self.loop.run_forever()
            part = len(waited) * 0.0004 / (self.now - began)  # share of the time, of which the others take 0.4
            if refuses:
                self.assertGreater(part, 0.5)
                self.assertLess(max(waited[500:]), 0.02)
                self.assertGreater(refused, 4000)
            else:
                self.assertEqual(refused, 0)
                self.assertGreater(max(waited), 0.1)
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    def test_few_are_never_refused(self):
        turns = Turns(self.loop, 0.005)
        turns._each = 1.0
        for _ in range(AHEAD):
            turns.add()
        with self.assertRaisesRegex(RequestError, "^some 16000 ms to wait for a turn: try again later$"):
            turns.add()
        turns.ready -= 1
        turns.add()

    def test_who_goes_meanwhile_holds_nobody_up(self):
        turns, begun = Turns(self.loop, 0.005), []

        async def request(number):
            await turns.come()
            begun.append(number)
            self.now += 2 * SECONDS

        async def all_of_them():
            tasks = [self.loop.create_task(request(number)) for number in range(6)]
            await asyncio.sleep(0)
            tasks[2].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.loop.run_until_complete(asyncio.wait_for(all_of_them(), None))
        self.assertEqual(begun, [0, 1, 3, 4, 5])


if __name__ == "__main__":
    unittest.main()
