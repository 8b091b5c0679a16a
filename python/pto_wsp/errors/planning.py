"""Plans that cannot be made."""

from __future__ import annotations

from pto_wsp.errors.base import PlanError


class BadPlanConfig(PlanError):
    """A planner or tier configuration outside its range."""

    code = "bad-plan-config"
    template = "{what} is out of range"
    label = "expected {expected}, found {found}"


class InvalidPlanParams(PlanError):
    """Lengths, sizes or counts that no plan can have (`PlanResult::INVALID_PARAMS`)."""

    code = "invalid-plan-params"
    template = "{what} cannot be planned"
    label = "expected {expected}, found {found}"


class UnsupportedSize(PlanError):
    """A length that no tier covers (`PlanResult::UNSUPPORTED_SIZE`)."""

    code = "unsupported-size"
    template = "no tier covers length {length} of request {request}"
    label = "tiers cover {covered}"
    hint = "extend the TierConfig; zero_length='empty_item' plans requests of length 0"


class PlanBufferOverflow(PlanError):
    """A buffer with too little room (`PlanResult::BUFFER_OVERFLOW`).

    Attributes:
        required: descriptors that the plan has.
    """

    code = "plan-buffer-overflow"
    template = "the buffer has room for {capacity} descriptors, the plan has {required}"
    hint = "allocate get_total_work(...) descriptors, or leave out= away"

    @property
    def required(self) -> int:
        """The number of descriptors that the plan has."""
        return self.fields["required"]  # type: ignore[return-value]


class BadPlanBuffer(PlanError):
    """A buffer that descriptors cannot be written to."""

    code = "bad-plan-buffer"
    template = "the buffer cannot hold descriptors"
    label = "expected {expected}, found {found}"
    hint = "np.empty(count, pto_wsp.planner.WORK_DESCRIPTOR) makes one"


class NotPlanned(PlanError):
    """A run of planned attention before its first plan."""

    code = "not-planned"
    template = "`{name}.run` needs a plan"
    label = "expected a call of `plan` before, found none"
    hint = "call plan(...) with the lengths of the batch; it serves any number of runs"
