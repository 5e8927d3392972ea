"""What a sweep has begun and done, in a file beside its rows: it outlives the process."""

from __future__ import annotations

import json
from pathlib import Path

NOBODY = ("all", "reference", "copy", "matmul")  # steps that are of no provider


class Journal:
    """What was begun and what is done, in a file beside the rows: it outlives the process."""

    def __init__(self, out: str) -> None:
        self.path = Path(f"{out}.journal")

    def write(self, event: str, key: str, **more: str) -> None:
        """Add one event."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, "key": key, **more}) + "\n")

    def events(self) -> list[dict[str, str]]:
        """All events; a line that was cut short with its process is none."""
        if not self.path.exists():
            return []
        found = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                continue  # the torn end of a killed process
        return found

    def done(self) -> set[str]:
        """Jobs whose rows are in the file."""
        return {event["key"] for event in self.events() if event["event"] == "done"}

    def left_out(self, key: str) -> dict[str, str]:
        """Providers that brought a process down at that job, each with what happened."""
        return {
            event["provider"]: event["what"]
            for event in self.events()
            if event["event"] == "fault" and event["key"] == key
        }

    def blame(self, words: str) -> str:
        """Lay a crash at the door of the provider that had begun last; who that was."""
        steps = [event for event in self.events() if event["event"] in ("step", "done")]
        if not steps or steps[-1]["event"] == "done":
            return ""
        last = steps[-1]
        if last["provider"] in NOBODY:
            self.write("done", last["key"])  # nobody's fault that we know: give the shape up
            return f"{last['key']} ({last['what']})"
        what = f"{words} at {last['what']}"
        self.write("fault", last["key"], provider=last["provider"], what=what)
        return f"{last['provider']} at {last['key']}"

    def last_is_done(self) -> bool:
        """Nothing was begun since the last rows were written."""
        events = self.events()
        return bool(events) and events[-1]["event"] == "done"

    def touched(self) -> float:
        """When the last event was written, in seconds of ``time.time()``; 0 before the first."""
        return self.path.stat().st_mtime if self.path.exists() else 0.0
