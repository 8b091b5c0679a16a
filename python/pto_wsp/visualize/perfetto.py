"""Chrome trace JSON, which Perfetto (ui.perfetto.dev) opens.

It is written a kernel at a time, since runs have millions of tasks, and read back for pictures of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from pto_wsp.errors import UnusableFile, naming_file
from pto_wsp.visualize.calls import CallSite
from pto_wsp.visualize.timeline import NO_CALLS, REASONS, STALLS, Timeline

_ROWS_AT_ONCE = 1 << 14
SECOND = "second lane"
_APART = ("stretch", SECOND)


class PerfettoWriter:
    """Writes one run, as a context: entering writes what is before the events, leaving what ends them.

    Times are given in nanoseconds and written in us, with the digits of both. `about` is what else is known
    of the run, by name.
    """

    def __init__(
        self,
        file: IO[str],
        worker: np.ndarray,
        start_ns: np.ndarray,
        end_ns: np.ndarray,
        about: Mapping[str, str],
        num_workers: int = 0,
        lanes: Sequence[str] = (),
        second: np.ndarray = NO_CALLS,
    ) -> None:
        self._file = file
        self._lanes = lanes
        self._second = second
        self._about = about
        self._num_workers = num_workers
        self._worker = worker
        self._start_ns = start_ns
        self._end_ns = end_ns

    def __enter__(self) -> PerfettoWriter:
        import json  # here: few programs save a trace, and all of them start

        about = json.dumps(dict(self._about))
        self._file.write(f'{{"displayTimeUnit":"ns","otherData":{about},"traceEvents":[\n')
        self._file.write('{"ph":"M","pid":0,"name":"process_name","args":{"name":"pto-wsp"}}')
        for lane in range(max(self._num_workers, int(self._worker.max(initial=-1)) + 1)):
            name = json.dumps(self._lanes[lane] if self._lanes else f"worker {lane}")
            args = f'"name":"thread_name","args":{{"name":{name}}}'
            self._file.write(f',\n{{"ph":"M","pid":0,"tid":{lane},{args}}}')
        return self

    def __exit__(self, *_: object) -> None:
        self._file.write("\n]}\n")

    def tasks(self, call: CallSite, rows: np.ndarray, keys: Sequence[np.ndarray]) -> None:
        """Write the tasks `rows`, all of one call of a kernel, with their coordinates."""
        kernel = call.kernel
        label = f"[{', '.join(['%d'] * len(keys))}]" if keys else ""
        form = (
            f'{{"ph":"X","pid":0,"tid":%d,"name":{_quoted(kernel)[:-1]}{label}","cat":{_quoted(kernel)},'
            f'"ts":%d.%03d,"dur":%d.%03d,"args":{{"task":%d,"location":{_quoted(call.location)},'
            f'"loops":[{",".join(map(_quoted, call.loops))}],"nest":{_quoted(call.nest)}}}}}'
        )
        start, end = self._start_ns[rows], self._end_ns[rows]
        self._write(form, [self._worker[rows], *keys, *_us(start), *_us(end - start), rows])
        if len(self._second):
            self._on_second(kernel, rows[self._second[rows] >= 0])

    def _on_second(self, kernel: str, rows: np.ndarray) -> None:
        """Write the other lanes that tasks take."""
        form = f'{{"ph":"X","pid":0,"tid":%d,"name":{_quoted(kernel)},"cat":"{SECOND}","ts":%d.%03d,'
        form += '"dur":%d.%03d,"args":{"task":%d}}'
        start, took = self._start_ns[rows], self._end_ns[rows] - self._start_ns[rows]
        self._write(form, [self._second[rows], *_us(start), *_us(took), rows])

    def arrows(self, dependences: np.ndarray, tensors: Sequence[str]) -> None:
        """Write an arrow for each row (task, one that depended on it, index in `REASONS`, in `tensors`)."""
        for index, tensor in np.unique(dependences[:, 2:], axis=0).tolist():
            reason, through = REASONS[index], _quoted(tensors[int(tensor)] if tensor >= 0 else "")
            numbers = np.flatnonzero((dependences[:, 2] == index) & (dependences[:, 3] == tensor))
            before, after = dependences[numbers, 0], dependences[numbers, 1]
            # An arrow begins in the last moment that belongs to its task.
            leave = np.maximum(self._end_ns[before] - 1, self._start_ns[before])
            common = (
                f'"cat":"dependence","name":"{reason}","id":%d,"pid":0,"tid":%d,"ts":%d.%03d,'
                f'"args":{{"task":%d,"through":{through}}}'
            )
            form = f'{{"ph":"s",{common}}},\n{{"ph":"f","bp":"e",{common}}}'
            begins = [numbers, self._worker[before], *_us(leave), before]
            ends = [numbers, self._worker[after], *_us(self._start_ns[after]), after]
            self._write(form, [*begins, *ends])

    def stretches(self, stretches: np.ndarray) -> None:
        """Write when workers expanded tasks and found dependences; tasks that ran meanwhile lie inside."""
        form = '{"ph":"X","pid":0,"tid":%d,"name":"at work","cat":"stretch","ts":%d.%03d,"dur":%d.%03d}'
        self._write(form, [stretches[:, 0], *_us(stretches[:, 1]), *_us(stretches[:, 2] - stretches[:, 1])])

    def dispatchers(self, walks: np.ndarray, stalls: np.ndarray) -> None:
        """Write what dispatchers did, as a process of its own: when they made tasks, what stopped them."""
        if not len(walks):
            return
        self._file.write(',\n{"ph":"M","pid":1,"name":"process_name","args":{"name":"dispatchers"}}')
        lanes = np.unique(walks[:, 0])
        form = '{"ph":"M","pid":1,"tid":%d,"name":"thread_name","args":{"name":"dispatcher %d"}}'
        self._write(form, [lanes, lanes])
        made = '"name":"made %d tasks","cat":"walk","args":{"first":%d,"count":%d}'
        form = f'{{"ph":"i","s":"t","pid":1,"tid":%d,"ts":%d.%03d,{made}}}'
        self._write(form, [walks[:, 0], *_us(walks[:, 3]), walks[:, 2], walks[:, 1], walks[:, 2]])
        for index, reason in enumerate(STALLS):
            rows = stalls[stalls[:, 1] == index]
            form = f'{{"ph":"X","pid":1,"tid":%d,"name":"{reason}","cat":"stall","ts":%d.%03d,"dur":%d.%03d}}'
            self._write(form, [rows[:, 0], *_us(rows[:, 2]), *_us(rows[:, 3] - rows[:, 2])])

    def _write(self, form: str, columns: Sequence[np.ndarray]) -> None:
        for first in range(0, len(columns[0]), _ROWS_AT_ONCE):
            rows = (column[first : first + _ROWS_AT_ONCE].tolist() for column in columns)
            self._file.write(",\n" + ",\n".join(map(form.__mod__, zip(*rows, strict=True))))


def _us(ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return ns // 1000, ns % 1000


def _quoted(text: str) -> str:
    """Return `text` as a JSON string in which `%` is doubled."""
    import json  # here: few programs save a trace, and all of them start

    return json.dumps(text).replace("%", "%%")


def read_timeline(path: str | Path) -> Timeline:
    """Return the run that a file of `PerfettoWriter` holds.

    Raises:
        UnusableFile: it cannot be read, or is not a trace of ours.
    """
    try:
        with naming_file("read", path):
            text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UnusableFile(what="read", path=path, reason="it is not UTF-8 text") from None
    return parse_timeline(text, path)


def parse_timeline(text: str, path: str | Path = "trace") -> Timeline:
    """Return the run of the text of a trace; `path` is what errors call it."""
    import json  # here: few programs read a trace, and all of them start

    try:
        trace = json.loads(text)
        events = [event for event in trace["traceEvents"] if event["ph"] != "M"]
        lanes = [event for event in events if event["ph"] == "X" and event["pid"] == 0]
        tasks = {event["args"]["task"]: event for event in lanes if event.get("cat") not in _APART}
        second = {event["args"]["task"]: event["tid"] for event in lanes if event.get("cat") == SECOND}
        names = [
            str(event["args"]["name"])
            for event in trace["traceEvents"]
            if event["ph"] == "M" and event["pid"] == 0 and event["name"] == "thread_name"
        ]
        ordered = [tasks[number] for number in range(len(tasks))]
        calls = [_call(event) for event in ordered]
        places = {call: i for i, call in enumerate(dict.fromkeys(calls))}
        tensors = sorted({str(e["args"]["through"]) for e in events if e["ph"] == "s"} - {""})
        kernels = sorted({str(event["cat"]) for event in ordered})
        about = {str(name): str(value) for name, value in trace.get("otherData", {}).items()}
        return Timeline(
            kernels,
            [str(event["name"]) for event in ordered],
            _column(kernels.index(event["cat"]) for event in ordered),
            _column(int(event["tid"]) for event in ordered),
            _column(_ns(event["ts"]) for event in ordered),
            _column(_ns(event["ts"]) + _ns(event["dur"]) for event in ordered),
            _table(_arrows(events, tensors), 4),
            _table(_walks(events), 4),
            _table(_stalls(events), 4),
            about,
            len(names),
            _table((_span(event) for event in lanes if event.get("cat") == "stretch"), 3),
            tensors,
            [*places],
            _column(places[call] for call in calls),
            [] if all(name.startswith("worker ") for name in names) else names,
            _column(int(second.get(number, -1)) for number in range(len(tasks))) if second else NO_CALLS,
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"it is not a trace that `Trace.save` wrote ({type(error).__name__}: {error})"
        raise UnusableFile(what="read", path=path, reason=reason) from None


def _arrows(events: Sequence[Any], tensors: Sequence[str]) -> Iterable[Sequence[int]]:
    """Return what arrows lead from and to, the index of their reason, and that of their tensor."""
    ends: dict[int, list[int]] = {}
    for event in events:
        if event["ph"] in "sf":
            through = event["args"]["through"]
            reasons = [REASONS.index(event["name"]), tensors.index(through) if through else -1]
            arrow = ends.setdefault(int(event["id"]), [-1, -1, *reasons])
            arrow[event["ph"] == "f"] = int(event["args"]["task"])
    return ends.values()


def _span(event: Any) -> tuple[int, int, int]:
    return event["tid"], _ns(event["ts"]), _ns(event["ts"]) + _ns(event["dur"])


def _call(event: Any) -> CallSite:
    args = event["args"]
    return CallSite(str(event["cat"]), (*map(str, args["loops"]),), str(args["location"]), str(args["nest"]))


def _walks(events: Sequence[Any]) -> Iterable[tuple[int, ...]]:
    made = (event for event in events if event["ph"] == "i")
    return ((e["tid"], e["args"]["first"], e["args"]["count"], _ns(e["ts"])) for e in made)


def _stalls(events: Sequence[Any]) -> Iterable[tuple[int, ...]]:
    for e in events:
        if e["ph"] == "X" and e["pid"] == 1:
            lane, start, end = _span(e)
            yield lane, STALLS.index(e["name"]), start, end


def _ns(us: float) -> int:
    return round(us * 1000)


def _column(values: Iterable[int]) -> np.ndarray:
    return np.array([*values], np.int64)


def _table(rows: Iterable[Sequence[int]], width: int) -> np.ndarray:
    return np.array([*rows], np.int64).reshape(-1, width)
