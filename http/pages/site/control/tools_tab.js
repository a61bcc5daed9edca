// The MCP servers whose tools this server calls: those of the settings, and those that requests named.
import { get } from '../api.js';
import { plain } from '../formats.js';
import { html } from '../vendor/preact.js';
import { usePolled } from './polled.js';
import { Table } from './table.js';

const look = async () => (await get('admin/status')).mcp;

export function ToolsTab({ connection }) {
  const { found, problem } = usePolled(look, 2_000, [connection.restarts]);
  const rows = (found || []).map((server) => [
    plain(server.label), server.kind, html`<span class=${`state ${server.state}`}>${server.state}</span>`,
    html`<details><summary>${server.tools.length}</summary>${server.tools.map(plain).join(', ')}</details>`,
    server.calls, server.failures, server.running, server.lost, plain(server.error),
  ]);
  return html`${problem && html`<p class="problem">${problem}</p>`}
    <${Table} caption="MCP servers" empty="No MCP servers are known." rows=${rows}
      heads=${['Server', 'Kind', 'State', 'Tools', 'Calls', 'Failed', 'Running', 'Sessions lost', 'Last error']} />`;
}
