// Reads calls.txt and prints what a library made of a reply. Knows neither library.
const fs = require('fs');

const unquoted = (word) => {
  const text = word.replace(/\\n/g, '\n');
  return text.includes('\\x') ? Buffer.from(text.replace(/\\x(..)/g, (_, hex) => String.fromCharCode(parseInt(hex, 16))), 'latin1') : text;
};

exports.callsOf = (path) => fs.readFileSync(path, 'utf8').split('\n').map((line) => line.trim())
  .filter((line) => line && !line.startsWith('#'))
  .map((line) => {
    const mark = '~?'.includes(line[0]) ? line[0] : '';
    const words = [...line.slice(mark.length).matchAll(/"([^"]*)"|\S+/g)].map((match) => (match[1] === undefined ? match[0] : unquoted(match[1])));
    return { line, mark, words };
  });

const plain = (value) => {
  if (value instanceof Error) return { error: value.message };
  if (Buffer.isBuffer(value)) return value.toString('latin1');
  if (value instanceof Map) return { map: [...value].map(([k, v]) => [plain(k), plain(v)]) };
  if (value instanceof Set) return { set: [...value].map(plain).sort() };
  if (Array.isArray(value)) return value.map(plain);
  if (value && typeof value === 'object') return { map: Object.entries(value).map(([k, v]) => [k, plain(v)]) };
  return value;
};

exports.text = (value, mark) => {
  const shown = plain(value);
  if (mark === '~') return shown === null ? 'null' : Array.isArray(shown) ? 'array' : typeof shown === 'object' ? Object.keys(shown)[0] : typeof shown;
  // Sorting the words of a flat map as well loses the pairs' order only, which other calls show.
  if (mark === '?' && Array.isArray(shown)) shown.sort();
  else if (mark === '?' && shown && Array.isArray(shown.map)) shown.map.sort();
  return JSON.stringify(shown);
};
