// The MCP servers of the settings that this caller may use, and those that a conversation uses.
import { get } from '../api.js';

let looking = null;

export function offeredServers() {
  looking ??= get('v1/mcp_servers', { isQuiet: true }).then(({ data }) => data, () => {
    looking = null; // another key may see them
    return [];
  });
  return looking;
}

// A conversation that says nothing of them uses those that every chat of this caller uses.
export const chosenServers = ({ servers }, offered) => (servers === undefined
  ? offered.filter((each) => each.default).map(({ id }) => id) : servers.split(',').filter(Boolean));
