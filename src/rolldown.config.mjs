/** The program. Its packages stay outside, but for those that package.json names for development only. */
export default {
  input: 'src/cli.ts',
  platform: 'node',
  external: ['classic-level', 'fastify', 'msgpackr', 'msgpackr/pack'],
  // Of modules that are ESM, what is not used is left out: three quarters of OpenTelemetry's.
  resolve: { mainFields: ['module', 'main'] },
  output: { dir: 'dist', chunkFileNames: 'cli-[name].js', charset: 'ascii', comments: false },
}
