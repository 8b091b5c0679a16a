"""The directives of schedules, one file per kind.

A file holds all that the project knows of its directives: their records, the functions that users call, the
options of the engine that enforce them, what a target makes of them, and the tests that prove their effects.
Verifier, printer, parser and pages follow from that.
"""
