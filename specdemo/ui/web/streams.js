/*
 * No event is lost between two streams. Gradio's server ends a page's stream of messages when no event is left, and its
 * client opens one for the next event only if it has heard of that end: what was pressed in between was never answered.
 * So a stream that ends while an event is under way goes on as a new one, of which the client knows nothing.
 *
 * Gradio's client says nothing when an event that does not wait in a queue fails, and of others what it likes; so those that
 * fail are told by notices.js. It must be loaded before Gradio's scripts.
 */
const EVENT = /\/gradio_api\/(queue\/join|run\/[^/]+)$/;
const STREAM = /\/gradio_api\/queue\/data$/;
/** Events that are under way, and those that ended before the answer came that gives them their names. */
const [begun, ended] = [new Set(), new Set()];
const send = window.fetch;

/** The messages of a stream, and of those that follow it. @param {Request} asked  @param {Response} answer */
async function* messages(asked, answer) {
  for (let next = answer; next;) {
    const reader = next.body.pipeThrough(new TextDecoderStream()).getReader();
    next = null;
    let rest = "";
    for (let read; !(read = await reader.read()).done;) {
      const texts = (rest + read.value).split("\n\n");
      rest = texts.pop();
      for (const text of texts) {
        const { msg, event_id } = JSON.parse(text.slice("data:".length));
        if (msg === "process_completed" && !begun.delete(event_id)) ended.add(event_id);
        if (msg === "close_stream" && begun.size) next = await send(asked).then((more) => more.ok && more, () => null);
        if (!next) yield text + "\n\n";
      }
    }
  }
}

window.fetch = async (asked, ...options) => {
  const { pathname } = new URL(asked.url || asked, location.href);
  if (!EVENT.test(pathname) && !STREAM.test(pathname)) return send(asked, ...options);
  const answer = await send(asked, ...options).catch((error) => { if (STREAM.test(pathname)) throw error; });
  if (EVENT.test(pathname)) {
    if (!answer?.ok) return window.SpecDemoNotices.failed(answer);
    const { event_id } = pathname.endsWith("/join") ? await answer.clone().json() : {};
    if (event_id && !ended.delete(event_id)) begun.add(event_id);
    return answer;
  }
  if (!answer.ok) return answer;
  const [left, encoder] = [messages(asked, answer), new TextEncoder()];
  const pull = async (out) => {
    const { done, value } = await left.next();
    if (done) out.close();
    else out.enqueue(encoder.encode(value));
  };
  return new Response(new ReadableStream({ pull }, { highWaterMark: 0 }), answer);
};
