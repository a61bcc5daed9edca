// The server's API by fetch: one key for all requests, problems as errors, streams as events.
import { readEvents } from './events.js';
import { askForKey, currentKey } from './key_dialog.js';

// The pages may lie under a path of another application.
export const root = new URL('../', import.meta.url);

export class ApiError extends Error {
  constructor(status, code, detail) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

async function problemOf(response) {
  let document = {};
  try {
    document = await response.json();
  } catch {
    // A proxy's page, or nothing: the status says all there is.
  }
  const error = document.error || {};
  const detail = document.detail || error.message || `The server answered ${response.status}.`;
  return new ApiError(response.status, document.code || error.code || '', String(detail));
}

// Browsers say “Failed to fetch” or “network error”, which tells a reader nothing.
const lost = (line) => (error) => { throw error instanceof TypeError ? new ApiError(0, 'unreachable', line) : error; };
const reach = (address, options) => fetch(address, options).catch(lost('The server does not answer.'));

export async function request(path, { method = 'GET', body, form, signal, isQuiet = false } = {}) {
  for (;;) {
    const headers = {};
    const key = currentKey();
    if (key) headers.authorization = `Bearer ${key}`;
    if (body !== undefined) headers['content-type'] = 'application/json';
    const response = await reach(new URL(path, root), {
      method,
      headers,
      signal,
      body: form || (body === undefined ? undefined : JSON.stringify(body)),
      credentials: 'omit',
    });
    if (response.ok) return response;
    const problem = await problemOf(response);
    if (isQuiet || response.status !== 401 || !(await askForKey(key, problem.message))) throw problem;
  }
}

export const get = async (path, options) => (await request(path, options)).json();

export const post = async (path, body = {}, options = {}) =>
  (await request(path, { ...options, method: 'POST', body })).json();

export const remove = async (path) => (await request(path, { method: 'DELETE' })).json();

// Calls `receive(name, data)` for each event until the stream ends or the signal aborts it.
export async function stream(path, options, receive) {
  const response = await request(path, options);
  await readEvents(response.body, receive).catch(lost('The connection to the server broke.'));
}
