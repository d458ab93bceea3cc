/** What a server loads with `--kv-connect`. */
export { KvCalls } from './fast-lane/kv-calls.js'
export { kvConnectRoutes } from './routes/kv-connect.js'
