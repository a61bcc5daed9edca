// The server's models, as the chat needs them.
import { get, post } from '../api.js';
import { bytes, percent } from '../formats.js';

const CHATS = ['text', 'vision'];

// While one loads, with how far it is, if this caller may ask.
export async function listModels() {
  const { data } = await get('v1/models');
  if (!data.some(({ state }) => state === 'loading')) return data;
  try {
    const { models } = await get('admin/models', { isQuiet: true });
    const loaded = new Map(models.map(({ id, load_progress: progress }) => [id, progress]));
    return data.map((model) => (model.state === 'loading' ? { ...model, progress: loaded.get(model.id) } : model));
  } catch {
    return data;
  }
}

export const kindOf = (model) => model?.capabilities?.type || model?.type || '';

export const chats = (model) => CHATS.includes(kindOf(model)) || !kindOf(model);

export const sees = (model) => Boolean(model?.capabilities?.inputs?.includes('image'));

export const firstOf = (models, kind) => models.find((model) => kindOf(model) === kind && !model.problem)?.id || '';

export function modelLabel(model) {
  const size = model.size_bytes ? `, ${bytes(model.size_bytes)}` : '';
  const progress = model.progress === undefined ? '' : ` ${percent(model.progress)}`;
  return `${model.id} (${model.state}${progress}${size})`;
}

// What a message to the model would do at present; nothing if this caller may not ask.
export async function planLine(model) {
  if (model?.id === 'greenroom-demo') return 'A tiny demo model. `greenroom setup` in a terminal gets a real one.';
  if (!model || model.state === 'ready') return '';
  if (model.problem) return String(model.problem);
  try {
    const plan = await post('admin/models/plan', { model: model.id }, { isQuiet: true });
    if (plan.outcome === 'ready') return '';
    const needed = plan.required_bytes ? ` (${bytes(plan.required_bytes)})` : '';
    if (plan.outcome === 'evicts') return `A message loads it${needed} and unloads ${[...plan.unload, ...plan.pause].join(', ')}.`;
    if (plan.outcome === 'loads') return `A message loads it${needed}.`;
    return plan.reason || { loading: 'It is being loaded.', waits: 'A message waits until memory is free.' }[plan.outcome] || '';
  } catch {
    return model.state === 'idle' ? 'A message loads it.' : '';
  }
}
