// A link whose page opens in the `<dialog>` that `data-dialog` names; that is a `fetched-dialog`.
// Without JS, or where it cannot be fetched, it is a link like any other.
export default function loadDialog(link) {
  const dialog = document.getElementById(link.dataset.dialog);
  if (!dialog) return;
  link.addEventListener("click", async (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    await open(dialog, link.href);
  });
  if (link.getAttribute("role") === "switch") {
    link.addEventListener("keydown", (event) => {
      if (event.key !== " ") return;
      event.preventDefault();
      link.click();
    });
  }
}

async function open(dialog, address) {
  const reply = await fetch(address, { headers: { "X-Requested-With": "dialog" } }).catch(
    () => null,
  );
  if (!reply?.ok || reply.redirected) {
    location.assign(address);
    return;
  }
  dialog.innerHTML = await reply.text();
  window.htmx.process(dialog);
  if (!dialog.open) dialog.showModal();
}
