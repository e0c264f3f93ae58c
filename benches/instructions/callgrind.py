"""What callgrind writes for one thread."""

import re
from collections import defaultdict


class Dump:
    """One thread's part of a dump."""

    def __init__(self, file):
        self.file = file
        self.text = file.read_text(errors="replace")
        self.thread = int(re.search(r"^thread: (\d+)$", self.text, re.MULTILINE)[1])
        total = re.search(r"^(?:totals|summary): (\d+)$", self.text, re.MULTILINE)
        self.instructions = int(total[1]) if total else 0

    def functions(self):
        """By function: calls, instructions of its own, and with what it calls (recursion counts again)."""
        calls, own, whole, names = defaultdict(int), defaultdict(int), defaultdict(int), {}

        def name(text):
            number, _, known = text.partition(" ")
            return names.setdefault(number, re.sub(r"::h[0-9a-f]{16}$", "", known))

        caller = callee = None
        call = False
        for line in self.text.splitlines():
            key, _, value = line.partition("=")
            if key == "fn":
                caller = name(value)
            elif key == "cfn":
                callee = name(value)
            elif key == "calls":
                calls[callee] += int(value.split()[0])
                call = True
            elif cost := re.match(r"(?:[+-]?\d+|\*) (\d+)$", line):
                if not call:
                    own[caller] += int(cost[1])
                    whole[caller] += int(cost[1])
                elif callee != caller:
                    whole[caller] += int(cost[1])
                call = False
        return calls, own, whole
