// A real OpenID Connect provider (npm's oidc-provider) whose people a test names over HTTP.
// Started with its configuration as JSON in IDENTITY_SERVER; POST /people replaces who is there and
// who logs in: {"current": "id", "people": {"id": {claims}}}.
import http from "node:http";
import { Provider } from "oidc-provider";

const { port, clients, pkce, issuer } = JSON.parse(process.env.IDENTITY_SERVER);
const state = { current: "", people: {} };

const provider = new Provider(issuer ?? `http://127.0.0.1:${port}`, {
  clients,
  claims: {
    openid: ["sub"],
    email: ["email", "email_verified"],
    profile: ["name", "given_name", "family_name", "picture", "preferred_username"],
    groups: ["groups"],
  },
  scopes: ["openid", "email", "profile", "groups"],
  conformIdTokenClaims: false,
  pkce: { required: () => pkce },
  features: { devInteractions: { enabled: false }, revocation: { enabled: true } },
  interactions: { url: (_ctx, interaction) => `/interaction/${interaction.uid}` },
  findAccount: (_ctx, id) => ({
    accountId: id,
    claims: async () => ({ sub: id, ...state.people[id] }),
  }),
  // Everybody agreed before.
  loadExistingGrant: async (ctx) => {
    const grant = new ctx.oidc.provider.Grant({
      clientId: ctx.oidc.client.clientId,
      accountId: ctx.oidc.session.accountId,
    });
    grant.addOIDCScope("openid email profile groups");
    await grant.save();
    return grant;
  },
  cookies: { keys: ["only for one test"] },
});
// Behind a proxy that ends TLS.
provider.proxy = Boolean(issuer);
const answer = provider.callback();

http
  .createServer(async (request, response) => {
    if (request.method === "POST" && request.url === "/people") {
      let body = "";
      for await (const part of request) body += part;
      Object.assign(state, JSON.parse(body));
      response.end("{}");
    } else if (request.url.startsWith("/interaction/")) {
      await provider.interactionFinished(request, response, {
        login: { accountId: state.current, remember: false },
      });
    } else {
      answer(request, response);
    }
  })
  .listen(port, "127.0.0.1");
