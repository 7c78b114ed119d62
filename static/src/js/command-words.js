// Shows a command as the words that the program gets, while it is typed: quoting is easy to get
// wrong. The server splits it in the same way.
export default function commandWords(place) {
  const field = place.closest("form").elements[place.dataset.field];
  const shown = place.querySelector("[data-words]");
  const show = () => {
    const words = split(field.value);
    shown.hidden = !words || words.length === 0;
    shown.replaceChildren();
    if (words === null) {
      shown.hidden = false;
      shown.textContent = "A quote is not closed.";
      return;
    }
    for (const word of words) {
      const one = document.createElement("code");
      one.className = "command-word";
      one.textContent = word === "" ? "(empty)" : word;
      shown.append(one);
    }
  };
  field.addEventListener("input", show);
  show();
}

/** The words of a command, as a POSIX shell quotes them; null where a quote is open. */
function split(text) {
  const words = [];
  let word = null;
  let quote = "";
  for (let at = 0; at < text.length; at += 1) {
    const sign = text[at];
    if (quote) {
      if (sign === quote) quote = "";
      else if (sign === "\\" && quote === '"' && '"\\'.includes(text[at + 1] ?? " ")) {
        word += text[(at += 1)];
      } else word += sign;
    } else if (sign === '"' || sign === "'") {
      quote = sign;
      word ??= "";
    } else if (sign === "\\") {
      if (at + 1 === text.length) return null;
      word = (word ?? "") + text[(at += 1)];
    } else if (" \t\r\n".includes(sign)) {
      if (word !== null) words.push(word);
      word = null;
    } else word = (word ?? "") + sign;
  }
  if (quote) return null;
  if (word !== null) words.push(word);
  return words;
}
