"""A headless Chromium for the tests of pages; every wait in it ends."""

import shutil
import time
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from wallab.command.screenshot import FLAGS


def lacking() -> str:
    """Say what of the browser this machine lacks; nothing if it is all there."""
    absent = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    return f"needs {' and '.join(absent)} (scripts/setup browser)" if absent else ""


class Browser:
    """A Chromium with a profile of its own below a folder."""

    def __init__(self, folder: Path) -> None:
        self._driver = self._start(folder)
        self._driver.set_page_load_timeout(120)
        self._driver.set_script_timeout(60)

    @staticmethod
    def _start(folder: Path) -> webdriver.Chrome:
        """Start it; on a machine under load the first try may not come up in time."""
        failure: WebDriverException | None = None
        for attempt in range(3):
            home = folder / f"try-{attempt}"
            options = Options()
            options.binary_location = shutil.which("chromium") or ""
            for flag in (*FLAGS, f"--user-data-dir={home / 'profile'}"):
                options.add_argument(flag)
            options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
            environment = {
                "PATH": "/usr/bin:/bin",
                "HOME": str(home),
                "XDG_CONFIG_HOME": str(home),
                "XDG_CACHE_HOME": str(home),
                "LANG": "C.UTF-8",
            }
            home.mkdir()
            service = Service(executable_path=shutil.which("chromedriver"), env=environment)
            try:
                return webdriver.Chrome(options=options, service=service)
            except WebDriverException as error:
                failure = error
        assert failure is not None
        raise failure

    def open(self, page: Path, fragment: str = "") -> None:
        """Open a file, in the browser's usual state, and forget what the console said."""
        self.size(1280, 900)
        self.media()
        self._driver.get("about:blank")
        self._driver.get_log("browser")  # type: ignore[no-untyped-call]
        self._driver.get(page.as_uri() + fragment)

    def console(self) -> list[str]:
        """Return what the console said since the page was opened: errors and warnings too."""
        entries = self._driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [str(entry["message"]) for entry in entries]

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page and return its value."""
        return self._driver.execute_script(script, *arguments)

    def wait_until(self, condition: str, patience: float = 60) -> None:
        """Wait until the expression is true in the page; an assertion fails if it never is."""
        deadline = time.monotonic() + patience
        while not self.run(f"return !!({condition})"):
            assert time.monotonic() < deadline, f"never: {condition}"
            time.sleep(0.05)

    def find(self, selector: str) -> WebElement:
        """Return the first element of the selector."""
        return self._driver.find_element(By.CSS_SELECTOR, selector)

    def shown(self, selector: str) -> list[str]:
        """Return the texts of the selector's elements that are not hidden."""
        script = (
            "return [...document.querySelectorAll(arguments[0])]"
            ".filter((one) => one.checkVisibility()).map((one) => one.textContent.trim())"
        )
        return [str(text) for text in self.run(script, selector)]

    def focused(self) -> WebElement:
        """Return the element that has the focus."""
        return self._driver.switch_to.active_element

    def command(self, name: str, **values: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol."""
        answer: dict[str, Any] = self._driver.execute_cdp_cmd(name, values)
        return answer

    def size(self, width: int, height: int) -> None:
        """Make the window as large as this."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    def media(self, scheme: str = "light", kind: str = "screen") -> None:
        """Prefer a colour scheme; kind is screen or print."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.command("Emulation.setEmulatedMedia", media=kind, features=features)

    def quit(self) -> None:
        """End it."""
        self._driver.quit()
