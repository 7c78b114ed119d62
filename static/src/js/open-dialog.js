// A button that opens the `<dialog>` named in `data-dialog`. Without JS the same dialog opens as a
// popover; with it, it is modal: the rest of the page waits.
export default function openDialog(button) {
  const dialog = document.getElementById(button.dataset.dialog);
  if (!dialog) return;
  button.addEventListener("click", (event) => {
    event.preventDefault();
    dialog.showModal();
  });
  for (const close of dialog.querySelectorAll("[data-close]")) {
    close.addEventListener("click", (event) => {
      event.preventDefault();
      dialog.close();
    });
  }
}
