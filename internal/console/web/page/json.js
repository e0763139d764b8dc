// JSON without loss. JavaScript's own parser turns 5.0 into 5 and rounds 12345678901234567. The members that hold data of
// users are therefore not parsed: they stay the text that the server sent.

/** Data of users as JSON text. */
export class Raw {
  constructor(text) {
    this.text = text;
  }
}

// The members of answers that hold data of users.
const verbatim = new Set(['input', 'output', 'data', 'progress', 'details', 'before', 'after', 'body']);

const token = /[ \t\n\r]*(?:([{}[\],:])|("(?:[^"\\]|\\.)*")|([^\s{}[\],:"]+))/y;

/** Splits JSON text into tokens. */
class Tokens {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.next();
  }

  /** Reads the next token. Its text is now; end is where it ended. */
  next() {
    this.end = this.at;
    token.lastIndex = this.at;
    const found = token.exec(this.text);
    this.at = found ? token.lastIndex : this.text.length;
    this.now = found ? found[1] ?? found[2] ?? found[3] : '';
    this.begin = this.at - this.now.length;
  }

  value(name) {
    const { begin, now } = this;
    if (verbatim.has(name) && now !== 'null') {
      this.skip();
      return new Raw(this.text.slice(begin, this.end));
    }
    if (now === '{') return this.object();
    if (now === '[') return this.array(name);
    this.next();
    return JSON.parse(now);
  }

  object() {
    const o = {};
    this.next();
    while (this.now !== '}' && this.now) {
      const name = JSON.parse(this.now);
      this.next(); // the name
      this.next(); // the colon
      Object.defineProperty(o, name, { value: this.value(name), enumerable: true, configurable: true, writable: true });
      if (this.now === ',') this.next();
    }
    this.next();
    return o;
  }

  array() {
    const list = [];
    this.next();
    while (this.now !== ']' && this.now) {
      list.push(this.value());
      if (this.now === ',') this.next();
    }
    this.next();
    return list;
  }

  skip() {
    let depth = 0;
    do {
      if (this.now === '{' || this.now === '[') depth++;
      else if (this.now === '}' || this.now === ']') depth--;
      this.next();
    } while (depth > 0 && this.now);
  }
}

/** Parses an answer of the API. Members with data of users are Raw. */
export const parse = (text) => new Tokens(text).value();

/** Parses data of users, as far as the page itself reads it. Its numbers may be rounded. */
export function read(raw) {
  return raw ? new Tokens(raw.text).value() : undefined;
}

const indent = '  ';

/**
 * Lays out JSON text. Every token stays as it was written; only the space between tokens changes. Returns pieces: [kind,
 * text], where kind is key, string, other or space.
 */
export function layout(text) {
  const t = new Tokens(text);
  const pieces = [];
  const open = [];
  const line = () => `\n${indent.repeat(open.length)}`;
  while (t.now) {
    const now = t.now;
    t.next();
    if (now === '{' || now === '[') {
      const closes = now === '{' ? '}' : ']';
      if (t.now === closes) {
        pieces.push(['space', now + closes]);
        t.next();
        continue;
      }
      open.push(now);
      pieces.push(['space', now + line()]);
    } else if (now === '}' || now === ']') {
      open.pop();
      pieces.push(['space', line() + now]);
    } else if (now === ',') pieces.push(['space', `,${line()}`]);
    else if (now === ':') pieces.push(['space', ': ']);
    else if (t.now === ':' && open.at(-1) === '{') pieces.push(['key', now]);
    else pieces.push([now.startsWith('"') ? 'string' : 'other', now]);
  }
  return pieces;
}

/** Checks typed JSON text and returns it unchanged. what names the field. */
export function typed(what, text) {
  try {
    JSON.parse(text);
  } catch (e) {
    throw new Error(`The ${what} isn't JSON: ${e.message}`);
  }
  return text;
}
