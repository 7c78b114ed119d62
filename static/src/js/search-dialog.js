// The link to the search opens it in the `<dialog>` that `data-dialog` names; so does Ctrl K.
// Without JS it is a link like any other.
export default function searchDialog(link) {
  const dialog = document.getElementById(link.dataset.dialog);
  if (!dialog) return;
  const input = dialog.querySelector("input");
  const open = () => {
    if (!dialog.open) dialog.showModal();
    input.select();
    input.dispatchEvent(new Event("input", { bubbles: true }));
  };
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    open();
  });
  document.addEventListener("keydown", (event) => {
    const isCommand = event.ctrlKey !== event.metaKey && !event.shiftKey && !event.altKey;
    if (!isCommand || event.key.toLowerCase() !== "k") return;
    event.preventDefault();
    // Another dialog may hold what nobody has saved yet.
    if (!document.querySelector("dialog:modal:not(#" + CSS.escape(dialog.id) + ")")) open();
  });
  // A press on what lies around it closes it.
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
}
