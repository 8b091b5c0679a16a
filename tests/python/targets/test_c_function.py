"""Programs as functions of C: names and types of arguments."""

from __future__ import annotations

from pto_wsp import In, Out, P, Scalar, Tensor, Tile, b1, bf16, f32, i64, kernel, pto, workload
from pto_wsp.targets.cpu.c_function import c_name, members_of


@kernel
def twice(x: In[Tile[1, 8, bf16]], y: Out[Tile[1, 8, f32]]):
    pto.store(y, pto.cast(x, f32) * 2.0)


@workload
def named(
    int: Tensor[bf16, "n", 8],
    workers: Tensor[f32, "n", 8],
    double: Scalar[f32],
    small: Scalar[i64],
    is_on: Scalar[b1],
):
    for i in P("n"):
        with P.when(is_on):
            twice[i](x=int[i : i + 1], y=workers[i : i + 1])


def test_names_are_identifiers_of_c_and_types_are_exact() -> None:
    found = {member.name: member.type for member in members_of(named.trace().module)}
    assert found == {
        "double_": "float ",
        "small": "int64_t ",
        "is_on": "bool ",
        "n": "int64_t ",
        "int_": "const uint16_t* ",
        "workers_": "float* ",
    }
    assert c_name("kv.offsets") == "kv_offsets"


def test_members_have_names_of_their_own() -> None:
    module = named.trace().module
    entry = module.entry_workload
    names = [member.name for member in members_of(module)]
    assert len(names) == len({*names}) == len(entry.tensors) + len(entry.symbols)
