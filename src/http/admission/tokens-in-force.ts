import type { Grant } from '../../access/grant.js'
import { KvError } from '../../errors/kv-error.js'
import { runSliced } from '../../event-loop/time-slicer.js'
import type { LetIn } from '../connections/let-in.js'

export type Authenticate = (token: string) => Grant | undefined

interface Following {
  readonly token: string
  readonly before: Grant
  readonly requires: ((grant: Grant) => void) | undefined
  readonly ended: (error: KvError) => void
}

export class TokensInForce {
  readonly authenticate: Authenticate
  /** Incremented whenever the tokens are read again, or one expires. */
  version = 0
  readonly #following = new Set<Following>()

  constructor(authenticate: Authenticate) {
    this.authenticate = authenticate
  }

  letIn(token: string, grant: Grant): LetIn {
    return new LetInByToken(this, token, grant)
  }

  /** Call after the tokens were read again, or one has expired: ends waiting requests whose token is gone, or has lost rights that they need. */
  changed(): void {
    this.version++
    void runSliced(this.#askAgain())
  }

  *#askAgain(): Generator<void, void, void> {
    for (const following of this.#following) {
      this.ask(following)
      yield
    }
  }

  follow(following: Following): () => void {
    this.#following.add(following)
    return () => this.#following.delete(following)
  }

  ask(following: Following): void {
    const error = this.refusal(following)
    if (error === undefined) return
    this.#following.delete(following)
    following.ended(error)
  }

  refusal({ token, before, requires }: Omit<Following, 'ended'>): KvError | undefined {
    try {
      const grant = grantOfToken(token, this.authenticate)
      if (requires !== undefined) requires(grant)
      else if (!grant.covers(before))
        throw new KvError('forbidden', 'the token has lost rights since the request began: send it again', {})
      return undefined
    } catch (error) {
      return error as KvError
    }
  }
}

class LetInByToken implements LetIn {
  readonly #tokens: TokensInForce
  readonly #token: string
  readonly #grant: Grant
  #requires: Following['requires']
  #version: number

  constructor(tokens: TokensInForce, token: string, grant: Grant) {
    this.#tokens = tokens
    this.#token = token
    this.#grant = grant
    this.#version = tokens.version
  }

  require(): void {
    if (this.#version === this.#tokens.version) return
    const refusal = this.#tokens.refusal({ token: this.#token, before: this.#grant, requires: this.#requires })
    if (refusal !== undefined) throw refusal
    this.#version = this.#tokens.version
  }

  follow(ended: (error: KvError) => void, requires?: (grant: Grant) => void): () => void {
    this.#requires = requires
    const following = { token: this.#token, before: this.#grant, requires, ended }
    const stop = this.#tokens.follow(following)
    if (this.#version !== this.#tokens.version) this.#tokens.ask(following)
    return stop
  }
}

export function grantOfToken(token: string | undefined, authenticate: Authenticate): Grant {
  const grant = token === undefined ? undefined : authenticate(token)
  if (grant !== undefined) return grant
  throw new KvError(
    'unauthorized',
    'the request needs a token that the server knows and that has not expired: Authorization: Bearer TOKEN',
    {},
  )
}
