// How the editor talks to REST: one answer shape, whatever happens.

/**
 * Asks and answers `{isOk, status, data, version}`; `data` is `{detail, fields}` where it went
 * wrong, also where nobody answered (`status` 0, and `isLost` where the server may have done what it
 * was asked and only its answer did not arrive). `version` is that of the ETag.
 */
export async function request(url, { method = "GET", body, version, csrf } = {}) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (version !== undefined) headers["If-Match"] = `"${version}"`;
  if (method !== "GET") headers["X-CSRFToken"] = csrf;
  try {
    const sent = body === undefined ? undefined : JSON.stringify(body);
    const response = await fetch(url, { method, headers, body: sent, credentials: "same-origin" });
    if (response.redirected) return failure("You are signed out. Sign in again in another tab.");
    const data = await response.json().catch(() => ({ detail: `The server answered ${response.status}.` }));
    const tag = response.headers.get("ETag");
    return {
      isOk: response.ok,
      status: response.status,
      data: response.ok ? data : { fields: {}, ...data },
      version: tag ? Number(tag.replace(/\D/g, "")) : undefined,
    };
  } catch {
    return { ...failure("The server does not answer. Try again."), isLost: true };
  }
}

function failure(detail) {
  return { isOk: false, status: 0, data: { detail, fields: {} } };
}

/** Findings and refused fields of a document, each with the entry that it concerns. */
export function locate(doc, path, detail, isError, code = "") {
  const [, kind, index, rest = ""] = /^(pools|profiles)\[(\d+)\]\.?(.*)$/.exec(path) ?? [];
  const key = kind ? (doc[kind][Number(index)]?.key ?? "") : "";
  return { kind: kind ?? "", key, field: kind ? rest : path, detail, isError, code };
}
