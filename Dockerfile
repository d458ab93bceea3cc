FROM node:24-bookworm-slim AS build
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci
COPY tsconfig.json tsconfig.build.json ./
COPY src ./src
RUN npm run build && npm prune --omit=dev
# For a store that servers share: pg@8, or @google-cloud/bigtable@6.5.1.
ARG STORE_CLIENT=
RUN if [ -n "$STORE_CLIENT" ]; then npm install --save-prod --omit=dev --ignore-scripts "$STORE_CLIENT"; fi

FROM node:24-bookworm-slim
ENV NODE_ENV=production
WORKDIR /app
COPY package.json LICENSE ./
COPY --from=build /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
RUN mkdir /data && chown node:node /data
USER node
VOLUME /data
EXPOSE 7400
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
  CMD ["node", "-e", "const tls = process.env.PERKV_TLS_CERT_FILE; if (tls) process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0'; fetch(`http${tls ? 's' : ''}://127.0.0.1:${process.env.PERKV_PORT ?? 7400}/readyz`).then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(1))"]
# It listens on every address of the container, so it wants a token file (PERKV_TOKEN_FILE), or --insecure behind the
# image's name where only trusted programs reach the port. Certificates by PERKV_TLS_*: the health check looks there.
# Exec form: node is process 1, hears SIGTERM, finishes what is in flight and closes the database. Up to 8 s of grace, so
# `docker stop`'s own 10 s are enough. More flags may follow the image's name.
ENTRYPOINT ["node", "dist/cli.js", "serve", "--host", "0.0.0.0", "--data", "/data"]
