"""What adapters add to products: the tasks of a request read the matrices of its own adapter.

Products of queries, keys, values and of the feed-forward network's first matrices get a row to add per token.
It is the bias, or 0, for tokens without an adapter. Other products add to the tokens, and so do adapters.
"""

# Annotations depend on the configuration, and are read by the language.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false

from collections.abc import Callable
from typing import Any

from examples.llm.kernels import ROWS
from examples.llm.storage import divisor
from examples.llm.weights import Plan, part
from pto_wsp import DYN, In, InOut, Out, P, Tensor, Tile, f32, i32, kernel, pto

COLS = 64
"""Columns of a step of a product with a matrix of an adapter."""


def shrink_kernel(k: int, rank: int) -> Any:
    """Return the kernel of the first product: x @ A."""

    @kernel
    def shrink(x: In[Tile[ROWS, k, f32]], a: In[Tensor[f32, k, rank]], low: Out[Tensor[f32, DYN, rank]]):
        for c in pto.tiles(low.cols, COLS):
            pto.store(low[:, c], pto.matmul(x, a[:, c]))

    return shrink


def rows_kernels(n: int, width: int, rank: int, has_bias: bool) -> tuple[Any, Any]:
    """Return the kernels of rows to add: of an adapter, and of none.

    Args:
        n: columns.
        width: columns of a bias, and of a step.
        rank: of adapters.
        has_bias: there are biases; without, the one given has no effect.
    """
    STEPS, HAS_BIAS = n // width, has_bias

    @kernel
    def expand(
        low: In[Tile[ROWS, rank, f32]],
        b: In[Tensor[f32, rank, n]],
        bias: In[Tensor[f32, DYN, 1, width]],
        out: Out[Tile[ROWS, n, f32]],
    ):
        for i in range(STEPS):
            c = i * width
            total = pto.matmul(low, b[:, c : c + width])
            if HAS_BIAS:
                total = total + bias[i]
            pto.store(out[:, c : c + width], total)

    @kernel
    def unchanged(bias: In[Tensor[f32, DYN, 1, width]], out: Out[Tile[ROWS, n, f32]]):
        for i in range(STEPS):
            c = i * width
            total = pto.zeros((out.rows, width))
            if HAS_BIAS:
                total = total + bias[i]
            pto.store(out[:, c : c + width], total)

    return expand, unchanged


def add_kernel(n: int, rank: int) -> Any:
    """Return the kernel that adds the second product to tokens."""

    @kernel
    def add_low(low: In[Tile[ROWS, rank, f32]], b: In[Tensor[f32, rank, n]], h: InOut[Tile[ROWS, n, f32]]):
        for c in pto.tiles(h.cols, COLS):
            pto.store(h[:, c], pto.matmul(low, b[:, c], acc=pto.load(h[:, c])))

    return add_low


class LowRank:
    """The tensors of adapters, and the tasks that use them.

    Args:
        plan: its `adapters` say which matrices adapters change.
    """

    def __init__(self, plan: Plan) -> None:
        self._config, self._roles, self._rank = plan.config, plan.adapters.roles, plan.adapters.rank
        self._chosen = Tensor(shape=("batch",), dtype=i32, name="Adapter")
        self._a, self._b, self._low, self._rows = ({} for _ in range(4))
        shape = (1, 1, divisor(plan.config.inner, COLS))
        self._no_bias = Tensor(shape=shape, dtype=f32, name="NoBias")
        for role in self._roles:
            k, n = plan.config.dims(role)
            stacked = (plan.config.layers, "adapters")
            self._a[role] = Tensor(shape=(*stacked, k, self._rank), dtype=f32, name=f"{role}_A")
            self._b[role] = Tensor(shape=(*stacked, self._rank, n), dtype=f32, name=f"{role}_B")
            self._low[role] = Tensor(shape=("tokens", self._rank), dtype=f32, name=f"{role}Low")
            self._rows[role] = Tensor(shape=("tokens", n), dtype=f32, name=f"{role}Rows")

    def has(self, role: str) -> bool:
        """Return whether adapters change the matrix of a role."""
        return role in self._roles

    def rows(self, role: str, layer: Any, request: Any, x: Any, bias: Any) -> Any:
        """Trace the rows [tokens, n] to add to a product, and return them.

        Args:
            role: of the matrix.
            layer: number of the layer.
            request: tokens of requests.
            x: left operand of the product, [tokens, k].
            bias: [parts, 1, columns] of the layer, or None.
        """
        n = self._config.dims(role)[1]
        width = self._config.dim if bias is not None else divisor(n, COLS)
        nothing = self._no_bias if bias is None else bias
        has_bias = bias is not None and self._config.has_bias
        expand, unchanged = rows_kernels(n, width, self._rank, has_bias)
        out = self._rows[role]

        def with_adapter(b: Any, t: Any, places: Any, low: Any, matrix: Any) -> None:
            expand[b, t](low=low, b=matrix, bias=nothing, out=out[places])

        self._each(role, layer, request, x, with_adapter)
        for b in P("batch"):
            with P.when(self._chosen[b] < 0):
                for t in P.tiles(request[b], ROWS):
                    unchanged[b, t](bias=nothing, out=out[request[b][t]])
        return out

    def biases(self, biases: dict[str, Any], layer: Any, request: Any, x: Any) -> Callable[..., Any]:
        """Trace the rows to add to queries, keys and values.

        Args:
            biases: per role [layers, heads, 1, dim], or of one head where there are none.
            layer: number of the layer.
            request: tokens of requests.
            x: left operand of the products.

        Returns:
            A function of a role, a tile of tokens and a head, which returns what the product gets.
        """
        config = self._config
        rows = {
            role: self.rows(role, layer, request, x, of[layer])
            for role, of in biases.items()
            if self.has(role)
        }

        def bias(role: str, r: Any, head: Any) -> Any:
            if role in rows:
                return rows[role][r, part(config.dim, head)]
            return biases[role][layer, head if config.has_bias else 0]

        return bias

    def add(self, role: str, layer: Any, request: Any, x: Any, hidden: Any) -> None:
        """Trace the products that adapters add to tokens."""
        add_low = add_kernel(self._config.dims(role)[1], self._rank)

        def with_adapter(b: Any, t: Any, places: Any, low: Any, matrix: Any) -> None:
            add_low[b, t](low=low, b=matrix, h=hidden[places])

        self._each(role, layer, request, x, with_adapter)

    def _each(self, role: str, layer: Any, request: Any, x: Any, body: Callable[..., None]) -> None:
        """Trace the first product of requests with an adapter, and `body` after it."""
        shrink, low = shrink_kernel(self._config.dims(role)[0], self._rank), self._low[role]
        for b in P("batch"):
            with P.when(self._chosen[b] >= 0):
                own = self._chosen[b]
                for t in P.tiles(request[b], ROWS):
                    places = request[b][t]
                    shrink[b, t](x=x[places], a=self._a[role][layer, own], low=low[places])
                    body(b, t, places, low[places], self._b[role][layer, own])
