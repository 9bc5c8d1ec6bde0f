// Serves one GGUF file as OpenAI's chat completions, for a test: node serve.mjs FOLDER
//
// FOLDER holds one *.gguf and node_modules/node-llama-cpp. The model need not know any chat: it goes on with a
// written dialogue, held to the JSON Schema of the request's response format. Prints its port when it is ready.
import {readdirSync} from "node:fs";
import {createServer} from "node:http";
import {createRequire} from "node:module";
import {join, resolve} from "node:path";
import {pathToFileURL} from "node:url";

const folder = resolve(process.argv[2]);
const require = createRequire(join(folder, "index.js"));
const {getLlama, LlamaCompletion} = await import(pathToFileURL(require.resolve("node-llama-cpp")));

const file = readdirSync(folder).find((name) => name.endsWith(".gguf"));
if (!file) throw new Error(`there is no *.gguf in ${folder}`);

const llama = await getLlama({gpu: false, build: "never", logLevel: "fatal"});
const model = await llama.loadModel({modelPath: join(folder, file)});
const context = await model.createContext({contextSize: 4096, threads: 1}); // several spin on a busy machine
const completion = new LlamaCompletion({contextSequence: context.getSequence()});
let last = Promise.resolve(); // one request after another

function dialogue(messages) {
    const said = {system: "", user: "User: ", assistant: "Assistant: "};
    return messages.map(({role, content}) => `${said[role]}${content}\n`).join("") + "Assistant: ";
}

function asGrammar(schema) { // the library's words: oneOf for anyOf, and nothing beside it
    if (Array.isArray(schema)) return schema.map(asGrammar);
    if (schema === null || typeof schema !== "object") return schema;
    const choices = schema.anyOf ?? schema.oneOf;
    if (choices) return {oneOf: choices.map(asGrammar), ...(schema.$defs ? {$defs: asGrammar(schema.$defs)} : {})};
    return Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, asGrammar(value)]));
}

async function answer(body, say) {
    const schema = body.response_format?.json_schema?.schema;
    const grammar = schema ? await llama.createGrammarForJsonSchema(asGrammar(schema)) : undefined;
    const {response, metadata} = await completion.generateCompletionWithMeta(dialogue(body.messages), {
        grammar, temperature: body.temperature ?? 0, maxTokens: body.max_tokens ?? 200, onTextChunk: say,
        customStopTriggers: grammar ? undefined : ["\nUser:"],
    });
    return {text: response, finish: metadata.stopReason === "maxTokens" ? "length" : "stop"};
}

const server = createServer(async (request, response) => {
    let text = "";
    for await (const piece of request) text += piece;
    const body = JSON.parse(text);
    const frame = (choice) => response.write(`data: ${JSON.stringify({model: file, choices: [{index: 0, ...choice}]})}\n\n`);
    const work = last.then(async () => {
        if (body.stream) response.writeHead(200, {"Content-Type": "text/event-stream"});
        const say = body.stream ? (content) => frame({delta: {content}, finish_reason: null}) : undefined;
        const {text, finish} = await answer(body, say);
        if (body.stream) {
            frame({delta: {}, finish_reason: finish});
            return response.end("data: [DONE]\n\n");
        }
        const message = {role: "assistant", content: text};
        response.writeHead(200, {"Content-Type": "application/json"});
        response.end(JSON.stringify({model: file, choices: [{index: 0, message, finish_reason: finish}]}));
    });
    last = work.catch((error) => {
        console.error(error);
        if (!response.headersSent) response.writeHead(500, {"Content-Type": "application/json"});
        response.end(JSON.stringify({error: {message: String(error)}}));
    });
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
