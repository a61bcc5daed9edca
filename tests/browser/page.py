"""A page in a headless Chromium, driven as a person would, and watched for what it must not do."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from PIL import Image
from selenium.webdriver import Chrome, ChromeOptions, ChromeService, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from greenroom.tests.support.packages.locked import ROOT
from greenroom.tests.support.servers.bounded_waits import wait_until

T = TypeVar("T")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
PICTURES = ROOT / "notes" / "pages"
"""Folder of the pictures, which `make browser PICTURES=1` takes anew."""
SCREENS = {"light": (1200, 760, "light"), "dark": (1200, 760, "dark"), "phone": (390, 760, "light")}
"""Width and height in pixels, and the scheme of colours that the reader prefers."""

_WATCH = """
window.violations = []; window.hurt = []; window.longTasks = [];
addEventListener('securitypolicyviolation',
  (event) => violations.push(`${event.violatedDirective} ${event.blockedURI}`));
addEventListener('error', (event) => hurt.push(String(event.message)));
addEventListener('unhandledrejection', (event) => hurt.push(String(event.reason)));
new PerformanceObserver((list) => list.getEntries().forEach((entry) => longTasks.push(entry.duration)))
  .observe({ type: 'longtask', buffered: true });
"""


@contextmanager
def chromium(*flags: str) -> Iterator[Page]:
    """Run a browser with a recording of beeps as its microphone."""
    options = ChromeOptions()
    assert CHROMIUM is not None
    options.binary_location = CHROMIUM
    fake = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
    # Without them Chromium asks hosts of its maker, which tests would take for requests of the page.
    quiet = ("--disable-background-networking", "--disable-component-update", "--no-first-run")
    small = ("--disable-dev-shm-usage", "--no-sandbox", "--autoplay-policy=no-user-gesture-required")
    for flag in ("--headless=new", *fake, *quiet, *small, *flags):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=ChromeService(DRIVER))
    try:
        driver.set_script_timeout(60)
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _WATCH})
        page = Page(driver)
        page.show("light")
        yield page
    finally:
        driver.quit()


class Page:
    """A tab. Elements are named by CSS selectors, buttons by what they are called to a screen reader."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver
        self.origin = ""

    def open(self, address: str, place: str = "") -> None:
        """Open a server's pages anew, at a place such as `#control/models`."""
        self.origin = address.rstrip("/")
        self.driver.get("about:blank")
        self.driver.get_log("performance")
        self.driver.get(f"{self.origin}/{place}")

    def go(self, place: str) -> None:
        """Follow a link to another place of the pages."""
        self.run("location.hash = arguments[0]", place)

    def run(self, script: str, *arguments: object) -> Any:
        """Run a script in the page."""
        return self.driver.execute_script(script, *arguments)

    def show(self, screen: str) -> None:
        """Take on a size and a scheme of colours."""
        width, height, scheme = SCREENS[screen]
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        preferred = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": preferred})

    def wait(self, look: Callable[[], T]) -> T:
        """Return the result of a look as soon as it is true."""
        found: list[T] = []

        def has_come() -> bool:
            found.append(look())
            return bool(found[-1])

        try:
            wait_until(has_come, 45)
        except TimeoutError as error:
            error.add_note(f"The page: {self.run('return document.body.innerText')!r:.2000}")
            raise
        return found[-1]

    def all(self, selector: str) -> list[WebElement]:
        """Return the elements of a selector."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        """Return the first visible element of a selector, as soon as there is one."""
        return self.wait(lambda: [each for each in self.all(selector) if each.is_displayed()])[0]

    def texts(self, selector: str) -> list[str]:
        """Return the texts of all elements of a selector, also hidden ones."""
        all_texts = (
            "[...document.querySelectorAll(arguments[0])].map((each) => each.textContent.toWellFormed())"
        )
        return list(map(str, self.run(f"return {all_texts}", selector)))

    def press(self, name: str, within: str = "body") -> None:
        """Press a button by its name, as soon as it is there and enabled."""
        script = """
        const found = [...document.querySelectorAll(arguments[1] + ' button')].find((each) =>
            (each.getAttribute('aria-label') || each.textContent).trim() === arguments[0]
            && !each.disabled && each.ariaDisabled !== 'true'
            && each.checkVisibility());
        return found || null"""
        self.run(
            "arguments[0].scrollIntoView({block: 'nearest'})",
            self.wait(lambda: self.run(script, name, within)),
        )
        self.wait(lambda: self.run(script, name, within)).click()

    def fill(self, label: str, text: str) -> None:
        """Write into the field of a label."""
        script = """
        const label = [...document.querySelectorAll('label')].find(
            (each) => each.textContent.trim().startsWith(arguments[0]) && each.checkVisibility());
        return label ? label.querySelector('input, textarea, select') || label.control : null"""
        field = self.wait(lambda: self.run(script, label))
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(Keys.DELETE)
        field.send_keys(text)

    def ask(self, text: str) -> None:
        """Write a message and send it with the key Enter."""
        self.one("#message").send_keys(text)
        # While an answer is being read there is no such button, also when its entry has ended.
        self.wait(lambda: self.run("return document.querySelector('#send')?.disabled === false"))
        self.one("#message").send_keys(Keys.ENTER)

    def choose(self, model: str, label: str = "Model") -> None:
        """Choose a model for the conversation."""
        script = """
        const label = [...document.querySelectorAll('label')].find(
            (each) => each.textContent.startsWith(arguments[1]));
        const select = label?.querySelector('select');
        if (![...select?.options ?? []].some((each) => each.value === arguments[0])) return false;
        select.value = arguments[0];
        select.dispatchEvent(new Event('change', {bubbles: true}));
        return true"""
        self.wait(lambda: self.run(script, model, label))

    def answers(self) -> list[str]:
        """Return the texts of the answers that have ended and are drawn whole."""
        return self.texts('.entry.answer[aria-busy="false"] > .markdown[aria-busy="false"]')

    def answer(self, number: int = 1) -> str:
        """Return the text of the latest answer, once so many have ended."""
        self.wait(lambda: len(self.all('.entry.answer[aria-busy="false"]')) >= number)
        self.wait(lambda: not self.all('.entry.answer[aria-busy="false"] .markdown[aria-busy="true"]'))
        return (self.answers() or [""])[-1]

    def picture(self, name: str) -> None:
        """Show dark, and in the width of a phone; with PICTURES, take pictures."""
        for screen in ("dark", "phone", "light"):
            self.show(screen)
            self.next_frame()
            if os.environ.get("PICTURES"):
                self.run("return new Promise((resolve) => setTimeout(resolve, 150))")
                path = PICTURES / f"{name}-{screen}.png"
                self.driver.save_screenshot(str(path))
                with Image.open(path) as picture:
                    picture.convert("RGB").quantize(48).save(path, optimize=True)

    def next_frame(self) -> None:
        """Wait until what has changed is drawn."""
        self.run(
            "return new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))"
        )

    def offences(self) -> list[str]:
        """Return the faults of the page: requests elsewhere, breaches of its policy, errors of scripts."""
        asked = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        sent = [
            each["params"]["request"]["url"]
            for each in asked
            if each["method"] == "Network.requestWillBeSent"
        ]
        elsewhere = [
            url for url in sent if not url.startswith((f"{self.origin}/", "blob:", "about:", "data:"))
        ]
        script = "return [...violations, ...hurt, ...(window.pwned ? ['a script ran'] : [])]"
        return [*elsewhere, *map(str, self.run(script))]
