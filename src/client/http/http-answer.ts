export interface HttpAnswer {
  readonly status: number
  readonly headers: Pick<Headers, 'get'>
  readonly body: Uint8Array
}
