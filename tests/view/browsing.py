"""A real browser for the tests of the viewer: Debian's chromium, driven by selenium."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
_PATIENCE = 20  # seconds


def find_browser() -> tuple[str, str] | None:
    """The browser and its driver; None without one."""
    found = shutil.which("chromium"), shutil.which("chromedriver")
    return found if all(found) else None  # type: ignore[return-value]


class Browser:
    """One session of the browser. Everything that is looked for is waited for."""

    def __init__(self, profile: Path) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        binary, driver = find_browser() or ("", "")
        options = webdriver.ChromeOptions()
        options.binary_location = binary
        arguments = ["--headless=new", "--disable-dev-shm-usage", f"--user-data-dir={profile}", "--hide-scrollbars"]
        arguments += ["--disable-background-networking", "--disable-component-update", "--no-first-run"]
        for argument in [*arguments, *(["--no-sandbox"] if os.getuid() == 0 else [])]:
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(driver))
        self.resize(1280, 800)

    def resize(self, width: int, height: int) -> None:
        """Set the size of the page."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def darken(self, dark: bool = True) -> None:
        """Have the page drawn as a system in dark colours asks for it."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def forget_cookies(self) -> None:
        """Remove the cookies of all sites."""
        self.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})

    def open(self, address: str) -> None:
        """Go to an address."""
        self.driver.get(address)

    def wait(self, find: Callable[[], T | None], what: str = "") -> T:
        """Wait until ``find`` gives something true."""
        from selenium.common.exceptions import (
            JavascriptException,
            NoSuchElementException,
            StaleElementReferenceException,
        )

        end = time.monotonic() + _PATIENCE
        while True:
            try:
                found = find()
            except (NoSuchElementException, StaleElementReferenceException, JavascriptException):
                found = None
            if found:
                return found
            if time.monotonic() > end:
                raise AssertionError(f"waited in vain for {what or find}; the page says: {self.text[:2000]}")
            time.sleep(0.03)

    def find(self, css: str) -> Any:
        """The first element, once it is there."""
        return self.wait(lambda: self.driver.find_element("css selector", css), css)

    def find_all(self, css: str) -> list[Any]:
        """All elements, once there is one."""
        return self.wait(lambda: self.driver.find_elements("css selector", css), css)

    def find_text(self, text: str, css: str = "body") -> None:
        """Wait until an element shows ``text``."""
        self.wait(lambda: text in (self.driver.find_element("css selector", css).text or ""), f"{text!r} in {css}")

    def click(self, css: str) -> None:
        """Click an element."""
        from selenium.common.exceptions import ElementClickInterceptedException, StaleElementReferenceException

        for _ in range(50):
            try:
                self.find(css).click()
                return
            except (ElementClickInterceptedException, StaleElementReferenceException):
                time.sleep(0.05)
        self.find(css).click()

    def click_at(self, x: float, y: float) -> None:
        """Move the mouse to a place of the page, and click."""
        from selenium.webdriver.common.actions.action_builder import ActionBuilder

        mouse = ActionBuilder(self.driver)
        mouse.pointer_action.move_to_location(int(x), int(y)).pause(0.1).click()
        mouse.perform()
        mouse.clear_actions()

    def double_click_at(self, x: float, y: float) -> None:
        """Click twice at a place of the page, quickly."""
        from selenium.webdriver.common.actions.action_builder import ActionBuilder

        mouse = ActionBuilder(self.driver)
        mouse.pointer_action.move_to_location(int(x), int(y)).pause(0.1).click().pause(0.05).click()
        mouse.perform()

    def drag(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """Press the mouse at a place, move it, and let go."""
        from selenium.webdriver.common.actions.action_builder import ActionBuilder

        mouse = ActionBuilder(self.driver)
        mouse.pointer_action.move_to_location(int(x), int(y)).pause(0.05).pointer_down()
        mouse.pointer_action.move_to_location(int((x + to_x) / 2), int((y + to_y) / 2)).pause(0.05)
        mouse.pointer_action.move_to_location(int(to_x), int(to_y)).pause(0.05).pointer_up()
        mouse.perform()

    def choose(self, css: str, label: str) -> None:
        """Choose from a list that opens."""
        self.click(css)
        self.wait(
            lambda: next((each.click() or True for each in self.find_all(".dash-dropdown-option")
                          if each.text == label), None), f"the choice {label}"
        )  # fmt: skip

    def type(self, css: str, text: str) -> None:
        """Replace the text of an input."""
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.common.keys import Keys

        for _ in range(5):  # a page that comes meanwhile has another input
            try:
                field = self.find(css)
                field.send_keys(Keys.CONTROL, "a")
                field.send_keys(text or Keys.DELETE)
                return
            except StaleElementReferenceException:
                time.sleep(0.05)
        raise AssertionError(f"{css} is replaced again and again")

    def press(self, key: str) -> None:
        """Press a key of the name that selenium has for it, wherever the focus is."""
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        ActionChains(self.driver).send_keys(getattr(Keys, key)).perform()

    def run(self, script: str, *arguments: Any) -> Any:
        """The result of a script."""
        return self.driver.execute_script(script, *arguments)

    @property
    def text(self) -> str:
        """What the page says."""
        return self.run("return document.body ? document.body.innerText : ''") or ""

    def shoot(self, path: Path) -> None:
        """Keep a picture of the page."""
        self.driver.save_screenshot(str(path))

    def take_messages(self) -> list[str]:
        """What was written on the console since the last time."""
        return [f"{entry['level']}: {entry['message']}" for entry in self.driver.get_log("browser")]

    def take_requests(self) -> Iterator[str]:
        """The addresses that were asked for since the last time."""
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                yield message["params"]["request"]["url"]

    def close(self) -> None:
        """End the browser."""
        self.driver.quit()
