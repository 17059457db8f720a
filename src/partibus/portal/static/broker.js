// The broker's HTTP door, with tokens made here: the key itself never leaves the browser.

const TOKEN_S = 3600;
const RENEW_S = 300;
const NAME = "partibus.connection";

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

export function readConnectionString(text) {
  const parts = {};
  for (const each of text.split(";")) {
    const at = each.indexOf("=");
    if (at > 0) parts[each.slice(0, at).trim().toLowerCase()] = each.slice(at + 1).trim();
  }
  if (!parts.sharedaccesskeyname || !parts.sharedaccesskey) {
    throw new Error("A connection string has SharedAccessKeyName=…;SharedAccessKey=…; it is printed when the broker starts.");
  }
  return { rule: parts.sharedaccesskeyname, key: parts.sharedaccesskey };
}

export class Broker {
  #signer;
  #token = "";
  #end = 0;

  constructor(signer) {
    this.#signer = signer;
  }

  // Kept until the tab is closed.
  static remember(text) {
    sessionStorage.setItem(NAME, text);
  }

  static forget() {
    sessionStorage.removeItem(NAME);
  }

  static remembered() {
    return sessionStorage.getItem(NAME);
  }

  async ask(method, path, body, headers = {}) {
    const sent = { ...headers };
    if (this.#signer) sent.Authorization = await this.#signed();
    let answer;
    try {
      answer = await fetch(path, { method, body, headers: sent, cache: "no-store" });
    } catch {
      throw new Error("The broker does not answer.");
    }
    const text = await answer.text();
    if (!answer.ok) throw new Refused(answer.status, reason(answer, text));
    return text;
  }

  async json(method, path, body) {
    return JSON.parse(await this.ask(method, path, body));
  }

  async #signed() {
    const now = Math.floor(Date.now() / 1000);
    if (this.#end - now < RENEW_S) {
      this.#end = now + TOKEN_S;
      const resource = encodeURIComponent(`${location.origin}/`);
      const signature = encodeURIComponent(await hmac(this.#signer.key, `${resource}\n${this.#end}`));
      const rule = encodeURIComponent(this.#signer.rule);
      this.#token = `SharedAccessSignature sr=${resource}&sig=${signature}&se=${this.#end}&skn=${rule}`;
    }
    return this.#token;
  }
}

async function hmac(key, text) {
  if (!crypto.subtle) {
    throw new Error("Browsers sign only on localhost and over https: open the portal by https.");
  }
  const bytes = new TextEncoder();
  const how = { name: "HMAC", hash: "SHA-256" };
  const made = await crypto.subtle.importKey("raw", bytes.encode(key), how, false, ["sign"]);
  const signature = await crypto.subtle.sign("HMAC", made, bytes.encode(text));
  return btoa(String.fromCharCode(...new Uint8Array(signature)));
}

function reason(answer, text) {
  const detail = /<Detail>([^]*?)<\/Detail>/.exec(text)?.[1] ?? text;
  const plain = new DOMParser().parseFromString(detail, "text/html").documentElement.textContent;
  return plain || `${answer.status} ${answer.statusText}`;
}

export const pathOf = (name) => `/${name.split("/").map(encodeURIComponent).join("/")}`;
