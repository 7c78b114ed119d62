// Says while one types whether the text can be read, and where it cannot; the sentence leads there.
const REST_MS = 400;

export default function vaultText(form) {
  const text = form.querySelector("[data-text]");
  const answer = form.querySelector("[data-answer]");
  let timer = 0;
  let asked = 0;

  async function check() {
    asked += 1;
    const mine = asked;
    const body = JSON.stringify({ text: text.value, format: form.elements.format.value });
    const headers = {
      "Content-Type": "application/json",
      "X-CSRFToken": form.elements.csrfmiddlewaretoken.value,
    };
    const reply = await fetch(form.dataset.check, { method: "POST", headers, body }).catch(() => null);
    const found = reply?.ok ? await reply.json().catch(() => null) : null;
    // What was typed meanwhile is asked about by itself.
    if (mine === asked) tell(found);
  }

  function tell(found) {
    answer.hidden = !found;
    answer.replaceChildren();
    if (!found) return;
    text.toggleAttribute("aria-invalid", false);
    if (!found.is_valid) text.setAttribute("aria-invalid", "true");
    answer.classList.toggle("text-bad", !found.is_valid);
    answer.classList.toggle("text-ink-3", found.is_valid);
    if (found.is_valid) {
      answer.textContent = `${answer.dataset.valid} ${found.keys.join(", ") || "–"}`;
    } else if (found.line) {
      const place = document.createElement("button");
      place.type = "button";
      place.className = "linklike";
      place.textContent = `${answer.dataset.goes} ${found.line}, ${found.column}`;
      place.addEventListener("click", () => go(found));
      answer.append(place, `: ${found.problem}`);
    } else {
      answer.textContent = found.problem;
    }
  }

  function go({ line, column }) {
    const lines = text.value.split("\n");
    const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
    const at = start + Math.max(column - 1, 0);
    text.focus();
    text.setSelectionRange(at, Math.max(at, start + (lines[line - 1]?.length ?? 0)));
  }

  form.addEventListener("input", (event) => {
    if (event.target !== text && event.target.name !== "format") return;
    clearTimeout(timer);
    timer = setTimeout(check, REST_MS);
  });
}
