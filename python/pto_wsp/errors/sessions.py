"""Sessions: launches that cannot run, and contracts that do not hold."""

from __future__ import annotations

from pto_wsp.errors.base import BindError, RunError


class LaunchSkipped(RunError):
    """A launch that did not run to its end, since one that it waits for failed."""

    code = "launch-skipped"
    template = "`{name}` was skipped, since `{first}` before it failed"
    label = "waits for `{first}`, whose error is `{code}`"
    hint = "correct the first error; launches that do not depend on it have run"


class ContractBroken(BindError):
    """A graph whose contract does not hold, or an order of launches that is not as stated."""

    code = "contract-broken"
    template = "the contract does not hold"
    label = "{reason}"
    hint = "launch the graphs in the order of their data, with the arrays that they exchange"


class SessionClosed(BindError):
    """A launch in a session whose block was left."""

    code = "session-closed"
    template = "`{name}` is launched in a session that has ended"
    hint = "launch inside the `with` block"
