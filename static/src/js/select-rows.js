// A form for rows that are selected with check boxes elsewhere on the page: it appears with the first
// one, and says how many are selected. Rows that leave the list leave the selection, too.
export default function selectRows(form) {
  const count = form.querySelector("[data-count]");
  const boxes = () => [...form.elements].filter((one) => "keepChecked" in one.dataset);
  const show = () => {
    const selected = boxes().filter((one) => one.checked).length;
    count.textContent = `${selected} selected`;
    form.hidden = selected === 0;
    for (const all of document.querySelectorAll("[data-select-all]")) {
      all.checked = selected > 0 && selected === boxes().length;
      all.indeterminate = selected > 0 && !all.checked;
    }
  };
  document.addEventListener("change", (event) => {
    const box = event.target;
    if ("selectAll" in box.dataset) {
      for (const one of boxes()) one.checked = box.checked;
    } else if (box.form !== form) return;
    show();
  });
  new MutationObserver(show).observe(document.querySelector(form.dataset.rows), {
    childList: true,
    subtree: true,
  });
  // The way back may bring the boxes as they were left.
  addEventListener("pageshow", show);
  show();
}
