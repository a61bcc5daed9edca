// A conversation as a file.
import { errorText, itemsOf, outputText, textOf } from './items.js';

function download(name, type, text) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

const fileName = ({ title }) => title.replace(/[^\p{L}\p{N} _-]+/gu, '').trim().slice(0, 60) || 'conversation';

function fenced(text) {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length));
  const fence = '`'.repeat(longest + 1);
  return `${fence}\n${text}\n${fence}`;
}

function ownCall({ server_label: server, name, arguments: given, output, error }) {
  const result = (error ?? null) === null ? output : errorText(error);
  const called = name ? `Calls \`${server}/${name}\`\n\n${fenced(given || '{}')}` : '';
  return [called, (result ?? null) === null ? '' : `Result\n\n${fenced(String(result))}`].filter(Boolean).join('\n\n');
}

function markdownOf(entry) {
  if (entry.kind === 'user') return `## You\n\n${textOf(entry)}`;
  if (entry.kind === 'results') {
    return entry.results.map(({ output }) => `## Tool result\n\n${fenced(outputText(output))}`).join('\n\n');
  }
  if (entry.kind === 'approvals') return entry.answers.map(({ approve }) => `## ${approve ? 'Approved' : 'Refused'}`).join('\n\n');
  const parts = entry.parts.map((part) => {
    if (part.item) return ownCall(part.item);
    if (part.type === 'reasoning') return `<details><summary>Reasoning</summary>\n\n${fenced(part.live.text)}\n\n</details>`;
    return part.type === 'call' ? `Calls \`${part.name}\`\n\n${fenced(part.live.text)}` : part.live.text;
  });
  return `## ${entry.model || 'Assistant'}\n\n${parts.join('\n\n')}`;
}

// A conversation, and the one beside it if two models are compared.
export function exportMarkdown([main, rival]) {
  const { system } = main.options;
  const texts = [`# ${main.title}`, ...(system ? [`## System\n\n${system}`] : []), ...main.entries.map(markdownOf)];
  if (rival) texts.push(`# Compared with ${rival.model}`, ...rival.entries.map(markdownOf));
  download(`${fileName(main)}.md`, 'text/markdown', `${texts.join('\n\n')}\n`);
}

export function exportJson([main, rival]) {
  const { title, model, options, entries } = main;
  const document = { title, model, settings: options, items: entries.flatMap(itemsOf) };
  if (rival) document.compared_with = { model: rival.model, items: rival.entries.flatMap(itemsOf) };
  download(`${fileName(main)}.json`, 'application/json', `${JSON.stringify(document, null, 2)}\n`);
}
