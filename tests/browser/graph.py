"""A drawn ModelGraph on a page: where things are, and clicks on the canvas itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

# the colours on the canvas, seen at every 7th pixel
COLOURS = """root => [...new Set((canvas => new Uint32Array(
    canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer).filter((_, at) => at % 7 === 0)
)(root.querySelector('canvas')))]"""

Kind = Literal["node", "value", "group"]


class GraphWidget:
    """The root element of a graph view and what a person does with it."""

    def __init__(self, root: Locator) -> None:
        self.root = root
        self.page: Page = root.page
        expect(root).to_have_attribute("data-state", re.compile("drawn|error"))
        if root.get_attribute("data-state") == "error":
            raise AssertionError(f"the graph shows an error: {root.inner_text()}")
        root.scroll_into_view_if_needed()
        # a canvas of one colour is no picture
        self.page.wait_for_function(COLOURS + ".length > 4", arg=root.element_handle())

    def call(self, body: str, *arguments: Any) -> Any:
        """Evaluate JavaScript with `view`, the handle at the root element, and `args`."""
        return self.root.evaluate(f"async (root, args) => {{ const view = root.onnxNb; {body} }}", arguments)

    def reveal(self, name: str, kind: Kind | None = None) -> None:
        """Open the scopes around it and bring it into view."""
        self.call("await view.reveal(args[0], args[1] ?? undefined);", name, kind)

    def locate(self, name: str, kind: Kind | None = None) -> tuple[float, float]:
        """Return the point of the window where a click hits it."""
        point = self.call("return view.locate(args[0], args[1] ?? undefined);", name, kind)
        assert point is not None, f"{name!r} cannot be seen"
        return point["x"], point["y"]

    def click(self, name: str, kind: Kind | None = None) -> None:
        """Click a tensor, node or scope on the canvas, bringing it into view if it is not."""
        if self.call("return view.locate(args[0], args[1] ?? undefined);", name, kind) is None:
            self.reveal(name, kind)
        self.page.mouse.click(*self.locate(name, kind))
        assert self.selection == name

    def toggle(self, scope: str) -> None:
        """Open or close a scope by a double click on its box."""
        drawn = self.drawn
        self.page.mouse.dblclick(*self.locate(scope, "group"))
        self.page.wait_for_function(f"performance.getEntriesByName('onnx_nb:drawn').length > {len(drawn)}")

    @property
    def selection(self) -> str | None:
        """Name of what is selected."""
        name: str | None = self.call("return view.state.selection && view.columns.nameOf(view.state.selection);")
        return name

    @property
    def drawn(self) -> list[dict[str, float]]:
        """What every `onnx_nb:drawn` mark of the page told: boxes and milliseconds."""
        marks: list[dict[str, float]] = self.page.evaluate(
            "performance.getEntriesByName('onnx_nb:drawn').map(mark => mark.detail)"
        )
        return marks

    def press(self, button: str) -> None:
        """Press a button by its visible text."""
        self.root.get_by_role("button", name=button, exact=True).first.click()

    def wait_for_plan(self) -> None:
        """Wait until the kernel has said what the extraction would take."""
        self.root.evaluate(
            """root => new Promise((resolve, reject) => {
                const started = performance.now();
                const look = () => root.onnxNb.state.plan !== null || root.onnxNb.state.cut.outputs.length === 0
                    ? resolve() : performance.now() - started > 20000 ? reject(new Error('no plan in 20 s'))
                    : setTimeout(look, 30);
                look();
            })"""
        )

    def extract(self) -> Locator:
        """Press Extract, taking the suggested inputs first if some are missing; return the pane with the submodel."""
        self.wait_for_plan()
        lacking = self.root.get_by_role("button", name=re.compile("^Add (it|them)$"))
        if lacking.is_visible():
            lacking.click()
            self.wait_for_plan()
        self.press("Extract")
        pane = self.root.locator('.onnx-nb[data-widget="submodel"]')
        expect(pane).to_have_attribute("data-state", "drawn")
        return pane
