// Results that follow what is typed. Arrows choose one of them, and Enter goes there; where Enter is
// faster than the answer, it goes to the first result as soon as that is there.
const REST_MS = 120;

export default function searchResults(form) {
  const input = form.querySelector("input");
  const results = form.querySelector("[data-results]");
  const count = form.querySelector("[data-count]");
  let timer = 0;
  let asked = null;
  let goesOn = false;
  let failed = false;
  for (const button of form.querySelectorAll("[data-without-js]")) button.hidden = true;

  const options = () => [...results.querySelectorAll("[role=option]")];
  const chosen = () => results.querySelector("[aria-selected=true]");

  function choose(option) {
    chosen()?.setAttribute("aria-selected", "false");
    if (!option) {
      input.removeAttribute("aria-activedescendant");
      return;
    }
    option.setAttribute("aria-selected", "true");
    input.setAttribute("aria-activedescendant", option.id);
    option.scrollIntoView({ block: "nearest" });
  }

  // What is typed elsewhere on the page stays: only Enter leaves it.
  function say(words) {
    results.replaceChildren(Object.assign(document.createElement("p"), { textContent: words }));
    results.firstChild.className = "px-3 py-4 text-ink-2";
    count.textContent = words;
  }

  function show(html) {
    results.innerHTML = html;
    const found = options();
    found.forEach((option, index) => {
      option.id = `${results.id}-${index}`;
      option.tabIndex = -1;
    });
    choose(found[0]);
    count.textContent = found.length === 1 ? "1 result" : `${found.length} results`;
    if (goesOn) found[0]?.click();
    goesOn = false;
  }

  async function ask() {
    const mine = (asked = new AbortController());
    const query = new URLSearchParams(new FormData(form));
    const headers = { "HX-Request": "true" };
    const reply = await fetch(`${form.dataset.address}?${query}`, { headers, signal: mine.signal })
      .then((answer) => (answer.ok && !answer.redirected ? answer.text() : null))
      .catch(() => null);
    if (mine.signal.aborted) return;
    asked = null;
    failed = reply === null;
    if (!failed) show(reply);
    // The page of the search says what is wrong, or leads to the log-in.
    else if (goesOn) form.submit();
    else say("The search did not answer. Press Enter to open its page.");
  }

  input.addEventListener("input", () => {
    goesOn = failed = false;
    // The answer to what was typed before is none to this.
    asked?.abort();
    asked = null;
    clearTimeout(timer);
    timer = setTimeout(() => {
      timer = 0;
      ask();
    }, REST_MS);
  });
  input.addEventListener("keydown", (event) => {
    const steps = { ArrowDown: 1, ArrowUp: -1 };
    if (!(event.key in steps) || event.isComposing) return;
    event.preventDefault();
    const found = options();
    const at = found.indexOf(chosen()) + steps[event.key];
    choose(found[(at + found.length) % found.length]);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (failed) form.submit();
    else if (timer || asked) goesOn = true;
    else chosen()?.click();
  });
  if (options().length) show(results.innerHTML);
}
