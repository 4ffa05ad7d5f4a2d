"""The dashboard in a real Chromium: what people press, and what must not move under their hands."""

import contextlib
import re
from urllib.parse import quote

import pytest
from documents import example_task
from playwright.sync_api import Page, expect
from plotly.offline import get_plotlyjs

from attnkit.figures.board import board
from attnkit.figures.curves import plot_accuracy
from attnkit.ui import components
from attnkit.ui.address import LATE_SECONDS
from attnkit.ui.bundle import script
from attnkit.ui.task_examples import shipped_example
from attnkit.ui.visitor import dashboard

pytestmark = [pytest.mark.browser, pytest.mark.server]

LONG = 60_000  # milliseconds; a shared machine may be slow, and waiting ends with the condition

GALLERY = ".st-key-gallery"

MARK_NODES = """() => {
  const find = (selector) => document.querySelector(`.st-key-board ${selector}`);
  window.marked = {
    board: find('.ak-board'),
    column: find('.ak-board-column'),
    value: find('.ak-value'),
    curve: find('.ak-line'),
    map: find('canvas'),
    answer: find('.ak-board-map text'),
  };
  window.replaced = 0;
  new MutationObserver((changes) => {
    for (const change of changes) {
      window.replaced += change.addedNodes.length + change.removedNodes.length;
    }
  }).observe(window.marked.board, {childList: true, subtree: true});
}"""
GONE_NODES = """() => Object.entries(window.marked)
  .filter(([, node]) => !node.isConnected).map(([name]) => name)"""
LAST_ACCURACY = """() => [...document.querySelectorAll('.st-key-board .ak-value')]
  .map((node) => parseFloat(node.textContent))"""
CURVES = """() => [...document.querySelectorAll('.st-key-board .ak-line')]
  .map((node) => node.getAttribute('d'))"""
COLOURS = """() => [...document.querySelectorAll('.st-key-board canvas')].map((canvas) =>
  [...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data].join())"""
PLOT = ".st-key-accuracy .ak-plot"

SIX = quote(
    "Reformer,K=V + MQA,QKV V=I d_head=m/h,Q=K=V scaled,QKV kv_rank=m/4,"
    "QKV n_heads=2 d_k=d/2 diff learning_rate=0.003 positions=relative"
)
"""As many columns as there can be, with long titles, several heads and chained matrices."""

TITLES = """() => [...document.querySelectorAll('.st-key-board .ak-board-head b')]
  .map((node) => node.getBoundingClientRect()).map((box) => [box.left, box.right, box.top])"""


@contextlib.contextmanager
def serve():
    """A dashboard server of its own on a free port; its address."""
    with dashboard() as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def page(browser):
    """A visitor of its own, who fails the test if the page reports an error."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    context.set_default_timeout(LONG)
    page = context.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if fatal(message) else None)
    yield page
    context.close()
    assert not errors


def fatal(message):
    """Console errors, but for icons that Streamlit fetches from outside."""
    return message.type == "error" and "Failed to load resource" not in message.text


def open_lab(page: Page, address: str, query: str = "") -> None:
    """Open the Lab and wait until its board is drawn."""
    page.goto(f"{address}/{query}")
    page.wait_for_selector(".st-key-board .ak-board[data-draws]")
    page.wait_for_selector(".st-key-example .ak-token-box")


def open_untrained(page: Page, address: str, query: str) -> None:
    """Open the Lab on a task that may have no finished example."""
    page.goto(f"{address}/{query}")
    page.wait_for_selector(".st-key-board .ak-board-column")
    page.wait_for_selector(".st-key-example .ak-token-box")


def press(page: Page, name: str) -> None:
    """Press a button of the action bar as soon as it can be pressed."""
    page.locator(f".st-key-{name} button").first.click()


def status(page: Page):
    """The line that says how far training is."""
    return page.locator("[data-testid=stMarkdown] p", has_text=re.compile(r"[Ss]tep \d+ of")).first


def step(page: Page) -> int:
    """The step on screen."""
    return int(re.search(r"[Ss]tep (\d+) of", status(page).inner_text())[1])


def wait_for_step(page: Page, least: int) -> None:
    """Wait until the step on screen is at least this."""
    page.wait_for_function(
        "(least) => Number((document.body.innerText.match(/[Ss]tep (\\d+) of/) || [0, -1])[1])"
        " >= least",
        arg=least,
    )


def wait_for_figure(page: Page, least: int, most: float = 10**9) -> None:
    """Wait until the board shows a step in this range."""
    page.wait_for_function(
        "([least, most]) => { const step = Number(document.querySelector("
        "'.st-key-board .ak-board').dataset.step); return least <= step && step <= most; }",
        arg=[least, most],
    )


def draws(page: Page, drawn: str) -> int:
    """How often a live figure has been drawn."""
    return int(page.locator(drawn).get_attribute("data-draws"))


def wait_for_draws(page: Page, drawn: str, more: int) -> None:
    """Wait until a live figure has been drawn so many times more."""
    page.wait_for_function(
        "([drawn, goal]) => Number(document.querySelector(drawn).dataset.draws) >= goal",
        arg=[drawn, draws(page, drawn) + more],
    )


def open_larger_charts(page: Page) -> None:
    """Unfold the charts that can be zoomed into."""
    page.locator(".st-key-larger summary").click()
    page.wait_for_selector(f"{PLOT}[data-draws]")


def test_first_visit_shows_a_finished_example(page, address):
    """Nobody meets an empty screen."""
    open_lab(page, address)
    expect(page.get_by_text("A finished example")).to_be_visible()
    expect(page.locator(".st-key-board .ak-value").first).to_have_text("100%")
    assert page.locator(".st-key-board canvas").count() == 5


def test_train_raises_accuracy_and_changes_the_map(page, address):
    """The main job: press one button, see all five learn."""
    open_lab(page, address, "?v=1&first_seed=100")
    press(page, "train")
    wait_for_figure(page, 0, 100)
    early, colours = page.evaluate(LAST_ACCURACY), page.evaluate(COLOURS)
    wait_for_figure(page, 150)
    late = page.evaluate(LAST_ACCURACY)
    assert len(late) == 5
    assert all(after > before for before, after in zip(early, late, strict=True))
    assert page.evaluate(COLOURS) != colours
    press(page, "stop")


def test_no_node_of_the_board_is_replaced_over_twenty_ticks(page, address):
    """Columns change their curves, numbers and pixels; nothing is rebuilt."""
    open_lab(page, address, "?v=1&first_seed=200&steps=5000")
    press(page, "train")
    wait_for_figure(page, 1, 500)  # the example, which it replaces, stands at a later step
    page.evaluate(MARK_NODES)
    curves = page.evaluate(CURVES)
    wait_for_draws(page, ".st-key-board .ak-board", 20)
    assert page.evaluate(GONE_NODES) == []
    assert page.evaluate("() => window.replaced") == 0
    assert all(after != before for before, after in zip(curves, page.evaluate(CURVES), strict=True))
    press(page, "stop")


def test_zoom_of_a_larger_chart_stays_while_data_change(page, address):
    """The charts below the board keep their node and what was zoomed into."""
    open_lab(page, address, "?v=1&first_seed=225&steps=5000")
    press(page, "train")
    wait_for_step(page, 1)
    open_larger_charts(page)
    page.evaluate("(plot) => { window.kept = document.querySelector(plot + ' .main-svg'); }", PLOT)
    page.locator(PLOT).scroll_into_view_if_needed()
    box = page.locator(f"{PLOT} .nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 60, box["y"] + 100, steps=4)
    page.mouse.up()
    shown = f"() => document.querySelector('{PLOT}')._fullLayout.xaxis.range"
    zoomed = page.evaluate(shown)
    assert zoomed[1] < 5000
    wait_for_draws(page, PLOT, 4)
    assert page.evaluate("() => window.kept.isConnected")
    assert page.evaluate(shown) == zoomed
    press(page, "stop")


REDRAW = """async ([source, data]) => {
  const url = URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));
  const draw = (await import(url)).default;
  const parentElement = document.querySelector('#here');
  const overtaken = draw({ data, parentElement });
  const cleanup = draw({ data, parentElement });
  const later = () => new Promise((done) => setTimeout(done, 200));
  await later();
  const nodes = [...parentElement.querySelectorAll('.ak-plot, .main-svg, .ak-board *')];
  overtaken();
  await later();
  draw({ data, parentElement });
  await later();
  const kept = nodes.filter((node) => node.isConnected).length;
  const plot = parentElement.querySelector('.ak-plot');
  parentElement.remove();
  cleanup();
  await later();
  return [nodes.length, kept, Boolean(plot?._fullLayout)];
}"""


@pytest.mark.parametrize("name", ["board", "figure"])
def test_cleanup_of_an_overtaken_draw_touches_nothing(page, name, monkeypatch):
    """Streamlit calls a draw's cleanup also when the next draw came before it had returned."""
    sent = {}
    monkeypatch.setattr(components, "_component", lambda _: lambda **given: sent.update(given))
    monkeypatch.setattr(components, "_board", lambda: lambda **given: sent.update(given))
    snapshot = shipped_example("directed")
    if name == "board":
        drawing = board(snapshot, snapshot.experiment, 0)
        components.board(drawing, key="x", alt="", faded=False)
    else:
        components.live_figure(plot_accuracy(snapshot), [], key="x", alt="", faded=False)
    page.set_content("<div id=here style='width: 900px'></div>")
    page.add_script_tag(content=get_plotlyjs())
    source = script(name)
    n_nodes, n_kept, still_plotted = page.evaluate(REDRAW, [source, sent["data"]])
    assert n_kept == n_nodes > 1
    assert not still_plotted


@pytest.mark.long
def test_hover_labels_stay_while_data_change(page, address):
    """Reading a value is not interrupted by the next tick."""
    open_lab(page, address, "?v=1&first_seed=250&steps=5000")
    press(page, "train")
    wait_for_step(page, 30)
    open_larger_charts(page)
    page.locator(PLOT).scroll_into_view_if_needed()
    box = page.locator(f"{PLOT} .nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + 3, box["y"] + box["height"] / 2)
    page.wait_for_selector(".st-key-accuracy .hovertext")
    wait_for_draws(page, PLOT, 4)
    assert page.locator(".st-key-accuracy .hovertext").count() == 5
    press(page, "stop")


def test_pause_holds_step_moves_one_evaluation_and_train_goes_on(page, address):
    """Pause, Step and Resume do what they say."""
    open_lab(page, address, "?v=1&first_seed=300&steps=3000")
    press(page, "train")
    wait_for_step(page, 5)
    press(page, "pause")
    expect(page.locator(".st-key-train")).to_contain_text("Resume")
    expect(status(page)).to_contain_text("Paused")
    held = step(page)
    press(page, "step")
    wait_for_step(page, held + 1)
    expect(status(page)).to_contain_text("Paused")
    assert step(page) == held - held % 10 + 10
    press(page, "train")
    wait_for_step(page, held + 30)
    press(page, "stop")
    expect(status(page)).to_contain_text("Stopped")


def test_reset_goes_back_to_the_same_start(page, address):
    """Reset: step 0, the same weights; training again gives the same curve."""
    open_lab(page, address, "?v=1&first_seed=350&steps=30")
    press(page, "train")
    expect(status(page)).to_contain_text("Finished")
    wait_for_figure(page, 30, 30)
    first = page.evaluate(CURVES)
    press(page, "reset")
    expect(status(page)).to_contain_text("Step 0 of 30")
    wait_for_figure(page, 0, 0)
    press(page, "train")
    expect(status(page)).to_contain_text("Finished")
    wait_for_figure(page, 30, 30)
    assert page.evaluate(CURVES) == first


@pytest.mark.long
def test_new_seeds_train_other_runs_and_fade_the_old_ones(page, address):
    """New seeds change the link and keep the previous experiment behind the new one."""
    open_lab(page, address, "?v=1&first_seed=400&steps=30")
    press(page, "train")
    expect(status(page)).to_contain_text("Finished")
    press(page, "new_seeds")
    page.wait_for_url("**first_seed=405**")
    expect(page.locator(".st-key-board .ak-legend")).to_contain_text("previous experiment")
    expect(status(page)).to_contain_text("Finished")


def test_link_opens_the_same_experiment_and_reload_finds_the_run(page, address):
    """The address says everything; a reload comes back to the run."""
    open_lab(page, address, "?v=1&task=mutual&sharing=QKV,K%3DV&first_seed=500&steps=4000")
    expect(page.locator(".st-key-set_steps input")).to_have_value("4000")
    expect(page.locator(".ak-board.ak-faded canvas")).to_have_count(2)  # the example still
    press(page, "train")
    wait_for_step(page, 20)
    page.reload()
    wait_for_step(page, 21)
    expect(page.locator(".st-key-board canvas")).to_have_count(2)
    press(page, "stop")


@pytest.mark.long
def test_run_goes_on_while_another_page_is_open(page, address):
    """Switching page and back finds the run still going."""
    open_lab(page, address, "?v=1&first_seed=600&steps=4000")
    press(page, "train")
    wait_for_step(page, 10)
    page.locator("[data-testid=stSidebarNav]").get_by_text("Guide").click()
    expect(page.get_by_role("heading", name="Five ways to share")).to_be_visible()
    page.locator("[data-testid=stSidebarNav]").get_by_text("Lab").click()
    wait_for_step(page, 20)
    assert "first_seed=600" in page.url
    press(page, "stop")


@pytest.mark.long
def test_broken_link_names_the_field_and_uses_defaults(page, address):
    """A hand-broken link is no dead end."""
    open_lab(page, address, "?v=1&d_head=999&stepz=1&utm_source=news")
    message = page.get_by_role("alert")
    expect(message).to_contain_text("d_head")
    expect(message).to_contain_text("stepz")
    expect(message).not_to_contain_text("utm_source")
    expect(page.locator(".st-key-set_d_head input")).to_have_value("16")


def test_a_class_link_made_in_share_hides_controls_until_they_are_asked_for(page, address):
    """The popover stays open while one chooses; the link works as it is shown."""
    open_lab(page, address, "?v=1&steps=70")
    page.locator(".st-key-share button").first.click()
    page.locator(".st-key-hide_directed input").click()
    page.keyboard.type("All settings")
    page.keyboard.press("Enter")
    link = page.locator(".st-key-share_links code").last
    expect(link).to_have_text(f"{address}/?v=1&steps=70&hide=settings")
    page.goto(link.inner_text())
    page.locator(".st-key-show_all button").click()
    expect(page.locator(".st-key-set_steps input")).to_have_value("70")
    assert "hide" not in page.url


def test_six_composed_variants_train_and_their_titles_do_not_touch(page, address):
    """All columns are drawn while they learn, and long titles wrap."""
    open_lab(page, address, f"?v=1&sharing={SIX}&n_seeds=1&steps=40&first_seed=700")
    press(page, "train")
    expect(status(page)).to_contain_text("Finished")
    wait_for_figure(page, 40, 40)  # the example, which it replaces, stands at a later step
    expect(page.locator(".st-key-board .ak-board-column")).to_have_count(6)
    expect(page.locator(".st-key-board canvas")).to_have_count(6)
    titles = page.evaluate(TITLES)
    assert len(titles) == 6
    for i, (left, right, top) in enumerate(titles):
        for other_left, other_right, other_top in titles[:i]:
            beside = right <= other_left or other_right <= left
            assert beside or abs(top - other_top) > 100


def test_a_variant_is_found_and_added(page, address):
    """Search the catalogue, see what it is, add it; the form closes and the pill is on."""
    open_lab(page, address, "?v=1&sharing=QKV")
    page.locator(".st-key-add_variant button").first.click()
    page.locator(".st-key-variant_text input").press_sequentially("shared-qk", delay=20)
    page.locator(".st-key-variants_found button", has_text="Reformer").click()
    expect(page.locator(".st-key-variant_text input")).to_have_value("Q=K unit_key self_mask")
    expect(page.locator(".st-key-preview .ak-diagram")).to_be_visible()
    page.locator(".st-key-add button").click()
    page.wait_for_url("**unit_key**")
    expect(page.locator(".st-key-variant_text input")).to_have_count(0)
    expect(page.locator(".st-key-set_sharing")).to_contain_text("Reformer")


def test_a_variant_is_checked_while_it_is_typed(page, address):
    """Without Enter: a slip is named, and right it can be added."""
    open_lab(page, address)
    page.locator(".st-key-add_variant button").first.click()
    written = page.locator(".st-key-variant_text input")
    written.press_sequentially("Q=K unit_kay", delay=20)
    expect(page.get_by_text("did you mean unit_key?")).to_be_visible()
    expect(written).to_have_value("Q=K unit_kay")
    written.fill("Q=K unit_key")
    expect(page.locator(".st-key-add button")).to_be_enabled()


def test_numbers_are_taken_as_they_are_typed_or_refused_at_their_box(page, address):
    """Neither 3.7 nor 1e3 is cut, an empty box is no 0, and what was typed stays."""
    open_lab(page, address)
    steps = page.locator(".st-key-set_steps input")
    beside = page.locator("[data-testid=stSidebar]")
    for typed, said in [("3.7", "Steps: 3.7 is not allowed."), ("", "Steps: empty.")]:
        steps.fill(typed)
        steps.press("Enter")
        expect(beside.get_by_text(said)).to_be_visible()
        expect(steps).to_have_value(typed)
    steps.fill("")
    steps.press_sequentially("1e3")
    steps.press("Enter")
    page.wait_for_url("**steps=1000")
    expect(beside.get_by_text("is not allowed")).to_have_count(0)


def thumbnails_drawn(page: Page, inside: str) -> None:
    """Wait until every card has its picture."""
    page.wait_for_function(
        """(inside) => { const cards = [...document.querySelectorAll(`${inside} .ak-task`)];
        return cards.length > 3 && cards.every((card) => card.querySelector('.ak-thumb')); }""",
        arg=inside,
    )


def test_a_task_is_chosen_in_the_gallery(page, address):
    """By mouse: the dialog opens without the server, a card sets the task up, the link says it."""
    open_lab(page, address)
    thumbnails_drawn(page, GALLERY)
    page.locator(f"{GALLERY} .ak-chosen-task").click()
    dialog = page.get_by_role("dialog", name="Choose a task")
    expect(dialog).to_be_visible()
    for family in ("Questions people ask", "Recall benchmarks", "Lists", "Text"):
        expect(dialog.get_by_role("region", name=family)).to_have_count(1)
    expect(dialog.locator("[aria-current=true] b")).to_have_text("Directed relation")
    dialog.get_by_role("button", name="Reverse").click()
    expect(dialog).to_be_hidden()
    page.wait_for_url("**task=reverse**")
    expect(page.locator(f"{GALLERY} .ak-chosen-task b")).to_have_text("Reverse")
    expect(page.locator(".st-key-example .ak-token-box")).to_have_count(16)
    expect(page.locator(".st-key-set_n_symbols input")).to_have_value("10")
    page.wait_for_timeout(1000 * LATE_SECONDS)  # so long an old address is taken for a late click
    page.go_back()
    expect(page.locator(f"{GALLERY} .ak-chosen-task b")).to_have_text("Directed relation")


def test_a_task_is_chosen_with_keys_alone(page, address):
    """Enter opens, focus is on the current task, Tab moves, Escape closes and focus comes back."""
    open_lab(page, address)
    button = page.locator(f"{GALLERY} .ak-chosen-task")
    button.focus()
    page.keyboard.press("Enter")
    focused = "() => document.activeElement.dataset.task"
    assert page.evaluate(focused) == "directed"
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Choose a task")).to_be_hidden()
    assert page.evaluate("() => document.activeElement.className") == "ak-chosen-task"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    following = page.evaluate(focused)
    assert following != "directed"
    page.keyboard.press("Enter")
    page.wait_for_url(f"**task={following}**")


def test_the_example_follows_the_dials_and_the_pointer(page, address):
    """Before any training: other entries, other example; pointing moves the arc."""
    open_untrained(page, address, "?v=1&task=phonebook")
    boxes = page.locator(".st-key-example .ak-token-box")
    expect(boxes).to_have_count(16)
    written = page.locator(".st-key-set_n_entries input")
    written.fill("5")
    written.press("Enter")
    expect(boxes).to_have_count(10)
    held = page.locator(".st-key-example .ak-holds .ak-place")
    before = held.inner_text()
    boxes.nth(9).hover()
    expect(held).not_to_have_text(before)
    assert page.locator(".st-key-example path").first.get_attribute("d")


@pytest.mark.parametrize(
    "task", [pytest.param("language", marks=pytest.mark.long), "mqar", "dictionary"]
)
def test_tasks_of_every_shape_train_and_show_maps(page, address, task):
    """A text, questions here and there, an encoder and a decoder."""
    query = f"?v=1&task={task}&sharing=QKV,Q%3DK&n_seeds=1&steps=4&evaluate_every=2&first_seed=800"
    open_untrained(page, address, query)
    press(page, "train")
    expect(status(page)).to_contain_text("Finished")
    expect(page.locator(".st-key-board canvas")).to_have_count(2)
    assert all(len(set(pixels.split(","))) > 3 for pixels in page.evaluate(COLOURS))


@pytest.mark.long
def test_trained_models_answer_a_book_of_ones_own(page, address):
    """Type three names, ask for one; then a line without a number is named."""
    query = "?v=1&task=phonebook&sharing=QKV,Q%3DK&n_seeds=2&steps=250&first_seed=850"
    open_untrained(page, address, query)
    untrained = "Your settings are not trained yet"
    expect(page.locator(".st-key-custom_book")).to_contain_text(untrained)
    press(page, "train")
    expect(status(page)).to_contain_text("Finished")
    book = page.locator(".st-key-custom_book textarea")
    book.fill("<b>Ada</b> 31\n李 14\nCem 25")
    book.press("Control+Enter")
    asked = page.locator(".st-key-asked_phonebook input")
    asked.fill("李")
    asked.press("Enter")
    rows = page.locator(".st-key-custom_book_answers tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("14 ✓")
    expect(page.locator(".st-key-custom_book_answers thead")).to_contain_text("<b>Ada</b>")
    book.fill("Ada 31\nBen")
    book.press("Control+Enter")
    expect(page.get_by_role("alert")).to_contain_text("Line 2: got “Ben”, which has no number")
    names = "Jindřich Ádám 李 Zoë Ñandú Øre Ωmega Łukasz Şule Ðóra Ивaн 😀".split()
    book.fill("\n\n".join(f"{name}: {number}" for number, name in enumerate(names, 100)))
    book.press("Control+Enter")
    asked.fill("jindřich")
    asked.press("Enter")
    cells = page.locator(".st-key-custom_book_answers thead :is(th, td)")
    expect(cells).to_have_count(1 + len(names) + 1)
    expect(rows.first).to_contain_text("100")
    book.fill("Ada 31\nCem 25\nADA 14")
    book.press("Control+Enter")
    expect(page.locator(".st-key-custom_book")).to_contain_text("Lines 1 and 3")
    book.fill("x" * 10_000)
    book.press("Control+Enter")
    expect(page.get_by_role("alert")).to_contain_text("Line 1")
    expect(page.locator("[data-testid=stException]")).to_have_count(0)


@pytest.mark.long
def test_a_quick_preset_is_one_press_away(page, address):
    """Small settings, which the address says; then there is nothing to offer any more."""
    page.goto(f"{address}/?v=1&task=reverse")
    page.get_by_role("button", name="Quick preset").click()
    page.wait_for_url("**length=8**")
    expect(page.get_by_label("Length", exact=True)).to_have_value("8")
    expect(page.get_by_role("button", name="Quick preset")).to_have_count(0)


@pytest.mark.long
def test_a_task_of_ones_own_is_in_the_gallery_and_trains(page, tmp_path, monkeypatch):
    """The example of docs/tasks.md, named in the environment of the server."""
    (tmp_path / "my_task.py").write_text(example_task(), encoding="utf-8")
    monkeypatch.setenv("ATTNKIT_MODULES", "my_task")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with serve() as own:
        open_untrained(page, own, "?v=1&task=largest&sharing=QKV&n_seeds=1&steps=40")
        thumbnails_drawn(page, GALLERY)
        expect(page.locator(f"{GALLERY} .ak-chosen-task b")).to_have_text("Largest")
        press(page, "train")
        expect(status(page)).to_contain_text("Finished")
        expect(page.locator(".st-key-board canvas")).to_have_count(1)
        page.goto("about:blank")  # it would complain of the server's end


def test_a_card_of_the_guide_opens_its_task(page, address):
    """With its picture and its source."""
    page.goto(f"{address}/guide")
    thumbnails_drawn(page, ".st-key-tasks")
    page.locator(".st-key-tasks").get_by_role("button", name="Induction").click()
    page.wait_for_url("**task=induction**")
    expect(page.locator(f"{GALLERY} .ak-chosen-task b")).to_have_text("Induction")


def test_variants_page_leads_to_the_lab(page, address):
    """A card's link sets up a comparison with plain attention."""
    page.goto(f"{address}/variants")
    page.get_by_text("Compare with QKV in the Lab").first.click()
    page.wait_for_url("**task=phonebook**")
    expect(page.get_by_text("Why do Q, K and V need different matrices?")).to_be_visible()


def test_guide_sets_the_lab_up(page, address):
    """A suggestion of the Guide opens the Lab with its settings."""
    page.goto(f"{address}/guide")
    thumbnails_drawn(page, ".st-key-tasks")
    page.get_by_text("Set it up in the Lab").nth(3).click()
    page.wait_for_url("**d_head=3**")
    expect(page.locator(".st-key-set_d_head input")).to_have_value("3")


@pytest.mark.parametrize("path", [f"/?v=1&sharing={SIX}", "/?v=1&task=language", "/?v=1&task=mqar"])
def test_narrow_screens_cut_nothing(browser, address, path):
    """At 640 px nothing is wider than the screen; see test_accessible.py for every page."""
    context = browser.new_context(viewport={"width": 640, "height": 900})
    page = context.new_page()
    page.goto(address + path)
    page.wait_for_selector(".ak-board .ak-diagram")
    if "task" in path:
        page.wait_for_selector(".st-key-example .ak-token-box")
    else:
        page.wait_for_selector(".st-key-board .ak-board[data-draws]")
    wider = """() => [...document.querySelectorAll('[data-testid=stMain] *')]
      .filter((node) => node.getBoundingClientRect().right > window.innerWidth + 1)
      .filter((node) => !node.closest('.ak-tip, .katex, [data-testid=stTable], .ak-board-grid'))
      .map((node) => node.tagName + '.' + node.className).slice(0, 5)"""
    assert page.evaluate(wider) == []
    context.close()


@pytest.mark.long
def test_first_visitor_of_a_server_may_come_by_an_inner_link(browser):
    """The Guide has its surroundings even if nobody opened the Lab before."""
    with serve() as fresh:
        page = browser.new_page()
        page.goto(f"{fresh}/guide")
        expect(page.get_by_role("heading", name="Five ways to share")).to_be_visible(timeout=LONG)
        expect(page.locator("[data-testid=stSidebarNav]")).to_contain_text("Lab")
        expect(page.locator("[data-testid=stSidebarNav]")).not_to_contain_text("dashboard")
        page.close()
