"""Records the moving picture of README: `python tests/lab_picture.py docs/assets/lab.webp`.

Starts a dashboard of its own and opens the Lab in Chromium, presses Reset and Train, and takes a
picture as often as the browser can, until all five ways of sharing are trained. A busy machine
trains slowly: `--speed 2` plays the picture twice as fast as it was recorded. Needs the extra
`dev`, Chromium, and the compiled kernel (`python -m attnkit.model.kernel` compiles it).
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from pathlib import Path

from browsing import chromium
from lab_browsing import open_lab
from PIL import Image
from playwright.sync_api import Page, sync_playwright
from visitor import HOST, dashboard

SIZE = (960, 520)
"""Width and height of the picture in pixels; the window is half as large again."""

FIRST, LAST = 1.0, 3.0
"""Seconds for which the first and the last frame stay."""

LONGEST = 60.0
"""Seconds after which the recording ends, whatever is trained."""


def main() -> None:
    """Record the picture and write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="the file to write, .webp or .gif")
    parser.add_argument("--quality", type=int, default=70, help="of WebP, 0 to 100")
    parser.add_argument("--speed", type=float, default=1.0, help="1: as fast as it was recorded")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        environment = {"ATTNKIT_STORE": folder}
        with dashboard(environment=environment) as port, sync_playwright() as playwright:
            browser = chromium(playwright)
            page = browser.new_page(
                viewport={"width": SIZE[0] * 3 // 2, "height": SIZE[1] * 3 // 2}
            )
            open_lab(page, f"http://{HOST}:{port}")
            frames = record(page)
            browser.close()
    write([(second / given.speed, image) for second, image in frames], given.file, given.quality)


def record(page: Page) -> list[tuple[float, Image.Image]]:
    """Press Train and return the pictures that differ, each with the second it was taken at."""
    page.locator(".st-key-reset button:visible").first.click()
    page.get_by_text("Step 0 of").first.wait_for()
    page.locator(".st-key-train button:visible").first.hover()
    page.get_by_role("tooltip").wait_for(state="hidden")
    page.wait_for_timeout(1000)
    frames = [(0.0, shot(page))]
    page.locator(".st-key-train button:visible").first.click()
    finished = page.get_by_text("Finished").first
    begin, seconds, last = time.monotonic(), 0.0, False
    while not last and seconds < LONGEST:
        last = finished.is_visible()
        if last:
            page.wait_for_timeout(500)  # the reason comes after the last step
        seconds = time.monotonic() - begin
        image = shot(page)
        if image.tobytes() != frames[-1][1].tobytes():
            frames.append((seconds, image))
    return frames


def shot(page: Page) -> Image.Image:
    """Return a picture of the window in the size of README's."""
    image = Image.open(io.BytesIO(page.screenshot(animations="disabled")))
    return image.convert("RGB").resize(SIZE, Image.Resampling.LANCZOS)


def write(frames: list[tuple[float, Image.Image]], path: Path, quality: int) -> None:
    """Write the frames as one animated file, each for as long as it was seen."""
    times = [-FIRST, *(second for second, _ in frames[1:])]
    ends = [*times[1:], times[-1] + LAST]
    duration = [round(1000 * (end - begin)) for begin, end in zip(times, ends, strict=True)]
    first, *others = [image for _, image in frames]
    film = {"save_all": True, "append_images": others, "duration": duration, "loop": 0}
    first.save(path, **film, quality=quality, method=6)
    print(f"{path}: {len(frames)} frames, {sum(duration) / 1000:.1f} s, {path.stat().st_size:,} B")  # noqa: T201


if __name__ == "__main__":
    main()
