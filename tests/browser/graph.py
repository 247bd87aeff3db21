"""Driver of a drawn ModelGraph: locates nodes and tensors, and clicks on the canvas itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from playwright.sync_api import expect

from tests.browser.jupyter import await_rest, await_value

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

# the colors on the canvas, seen at every 7th pixel
COLORS = """root => {
    const canvas = root.querySelector('canvas');
    const {width, height} = canvas;
    const copy = new OffscreenCanvas(width || 1, height || 1).getContext('2d');
    if (width && height) copy.drawImage(canvas, 0, 0);
    const {data} = copy.getImageData(0, 0, width || 1, height || 1);
    return [...new Set(new Uint32Array(data.buffer).filter((_, at) => at % 7 === 0))];
}"""
# boxes and milliseconds of each drawing
DRAWN = "performance.getEntriesByName('onnx_nb:drawn')"

Kind = Literal["node", "tensor", "scope"]


class GraphWidget:
    """The root element of a graph view and the actions of a person on it."""

    def __init__(self, root: Locator) -> None:
        self.root = root
        self.page: Page = root.page
        expect(root).to_have_attribute("data-state", re.compile("drawn|error"))
        if root.get_attribute("data-state") == "error":
            raise AssertionError(f"the graph shows an error: {root.inner_text()}")
        # Playwright's own fails where the view is drawn anew in the meantime
        root.evaluate("root => root.scrollIntoViewIfNeeded()")
        # a canvas of one color is no picture
        await_value(lambda: root.evaluate(f"root => ({COLORS})(root).length > 4"), wanted=True, what="a picture")
        self.expect_drawing_after(0)

    def call(self, body: str, *arguments: Any) -> Any:
        """Evaluate JavaScript with `view`, the handle on the root element, and `args`."""
        return self.root.evaluate(f"async (root, args) => {{ const view = root.onnxNb; {body} }}", arguments)

    def expect(self, expression: str, value: Any = True, *arguments: Any) -> None:
        """Wait until a JavaScript expression of `view` and `args` has the given value."""
        await_value(lambda: self.call(f"return {expression};", *arguments), value, expression)

    def rest(self) -> None:
        """Wait until the view is at rest."""
        await_rest(self.page)

    def reveal(self, name: str, kind: Kind | None = None) -> None:
        """Open the scopes around an item and bring it into view, on a page that may have been scrolled."""
        self.root.evaluate("root => root.querySelector('canvas').scrollIntoViewIfNeeded()")
        self.call("await view.reveal(args[0], args[1] ?? undefined);", name, kind)

    def find(self, name: str, kind: Kind | None = None) -> tuple[float, float] | None:
        """Return the window coordinates where a click hits an item, once the view is at rest; None if hidden."""
        self.rest()
        point = self.call("return view.locate(args[0], args[1] ?? undefined);", name, kind)
        return None if point is None else (point["x"], point["y"])

    def locate(self, name: str, kind: Kind | None = None) -> tuple[float, float]:
        """Return the window coordinates where a click hits an item, once the view is at rest."""
        point = self.find(name, kind)
        assert point is not None, f"{name!r} cannot be seen"
        return point

    def click(self, name: str, kind: Kind | None = None) -> None:
        """Click a tensor, node or scope on the canvas, bringing it into view if it is not."""
        if self.find(name, kind) is None:
            self.reveal(name, kind)
        self.page.mouse.click(*self.locate(name, kind))
        self.expect_selection(name)

    def toggle(self, scope: str) -> None:
        """Open or close a scope by a double click on its box, and wait until the result is drawn."""
        state = "view.state.open.has(view.columns.find(args[0], 'scope').id)"
        was_open, drawn = self.call(f"return {state};", scope), len(self.drawn)
        self.page.mouse.dblclick(*self.locate(scope, "scope"))
        self.expect(state, not was_open, scope)
        self.expect_drawing_after(drawn)

    def scope(self, *, is_open: bool) -> str:
        """Return the name of the first scope in the outermost one that is open, or closed."""
        name: str = self.call(
            """const scope = view.columns.childrenOf(0).find(each => view.state.open.has(each) === args[0]);
               return view.columns.nameOf({kind: 'scope', id: scope});""",
            is_open,
        )
        return name

    def expect_drawing_after(self, drawn: int) -> None:
        """Wait until the view has been drawn again and is at rest."""
        self.expect(f"{DRAWN}.length > args[0]", True, drawn)
        self.rest()

    def expect_selection(self, name: str | None) -> None:
        """Wait until the selection is exactly this."""
        await_value(lambda: self.selection, name, "the selection")

    @property
    def selection(self) -> str | None:
        """Name of the selected item."""
        name: str | None = self.call("return view.state.selection && view.columns.nameOf(view.state.selection);")
        return name

    @property
    def drawn(self) -> list[dict[str, float]]:
        """Details of every `onnx_nb:drawn` mark of the page: boxes and milliseconds."""
        marks: list[dict[str, float]] = self.page.evaluate(f"{DRAWN}.map(mark => mark.detail)")
        return marks

    def press(self, button: str) -> None:
        """Press a button by its visible text."""
        self.root.get_by_role("button", name=button, exact=True).first.click()

    def wait_for_plan(self) -> None:
        """Wait until the kernel has planned the extraction."""
        self.expect("view.state.plan !== null || view.state.boundary.outputs.length === 0")

    def extract(self) -> Locator:
        """Press Extract, taking the suggested inputs first if some are missing; return the pane with the submodel."""
        self.wait_for_plan()
        lacking = self.root.get_by_role("button", name=re.compile("^Add (it|them)$"))
        if lacking.is_visible():
            lacking.click()
            self.wait_for_plan()
        self.root.locator(".onnx-nb-extract").first.get_by_role("button", name="Extract", exact=True).click()
        pane = self.root.locator('.onnx-nb[data-widget="submodel"]')
        expect(pane).to_have_attribute("data-state", "drawn")
        return pane
