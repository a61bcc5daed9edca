// The settings of a conversation: fields of the form, and members of a request.

export const NUMBERS = [
  { name: 'temperature', label: 'Temperature', step: 0.05, min: 0, max: 5 },
  { name: 'top_p', label: 'Top p', step: 0.05, min: 0, max: 1 },
  { name: 'top_k', label: 'Top k', step: 1, min: 0 },
  { name: 'min_p', label: 'Min p', step: 0.01, min: 0, max: 1 },
  { name: 'presence_penalty', label: 'Presence penalty', step: 0.1, min: -2, max: 2 },
  { name: 'frequency_penalty', label: 'Frequency penalty', step: 0.1, min: -2, max: 2 },
  { name: 'max_output_tokens', label: 'Most tokens', step: 1, min: 1 },
  { name: 'seed', label: 'Seed', step: 1 },
];
export const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high'];

export function jsonProblem(text, wanted) {
  if (!text?.trim()) return '';
  try {
    const found = JSON.parse(text);
    if (wanted === 'array' && !(Array.isArray(found) && found.every((each) => each && typeof each === 'object'))) return 'This must be a list of objects.';
    if (wanted === 'object' && (Array.isArray(found) || typeof found !== 'object' || !found)) return 'This must be an object.';
    return '';
  } catch (error) {
    return `This is not JSON: ${error.message}`;
  }
}

// What the model itself would take: its folder's or its operator's value.
export function modelDefault(model, name) {
  const key = name === 'max_output_tokens' ? 'max_tokens' : name;
  const value = model?.settings?.[key]?.value ?? model?.generation?.[key];
  return value === null || value === undefined ? 'default' : String(value);
}

export function requestOptions(options, servers) {
  const members = {};
  if (options.system?.trim()) members.instructions = options.system;
  for (const { name } of NUMBERS) {
    const value = Number(options[name]);
    if (options[name] !== undefined && options[name] !== '' && Number.isFinite(value)) members[name] = value;
  }
  if (options.effort) members.reasoning = { effort: options.effort };
  if (options.schema?.trim()) {
    const schema = JSON.parse(options.schema);
    members.text = { format: { type: 'json_schema', name: 'answer', schema, strict: true } };
  }
  // Both forms of OpenAI's APIs are pasted.
  const own = JSON.parse(options.tools?.trim() || '[]').map((tool) => (
    tool.function ? { type: 'function', ...tool.function } : tool));
  const tools = [...own, ...servers.map((name) => ({ type: 'mcp', server_label: name }))];
  if (tools.length) members.tools = tools;
  return members;
}
