// A form that asks before its page is left with changes that were not sent. `data-unsaved` marks
// values that were sent and not saved: they came back with an error or a preview.
export default function unsavedForm(form) {
  let isSent = false;
  form.addEventListener("submit", () => {
    isSent = true;
  });
  for (const failure of ["htmx:responseError", "htmx:sendError"]) {
    form.addEventListener(failure, () => {
      isSent = false;
    });
  }
  // The way back shows the page as it was left.
  addEventListener("pageshow", () => {
    isSent = false;
  });
  addEventListener("beforeunload", (event) => {
    if (form.isConnected && !isSent && isUnsaved(form)) event.preventDefault();
  });
}

const isUnsaved = (form) => "unsaved" in form.dataset || [...form.elements].some(isChanged);

function isChanged(field) {
  if (field.type === "file") return field.files.length > 0;
  if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
  if (field instanceof HTMLSelectElement) return isOtherChoice(field);
  return "defaultValue" in field && field.value !== field.defaultValue;
}

/** Of a select without a default, the browser chooses the first option. */
function isOtherChoice({ options, selectedIndex, multiple }) {
  const list = [...options];
  if (!multiple && !list.some((one) => one.defaultSelected)) return selectedIndex > 0;
  return list.some((one) => one.selected !== one.defaultSelected);
}
