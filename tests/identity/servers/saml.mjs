// A real SAML provider (npm's samlify) whose people a test names over HTTP.
// Started with its configuration as JSON in IDENTITY_SERVER; POST /people replaces who logs in:
// {"current": "id", "people": {"id": {"email": "...", "groups": [...]}}}.
import http from "node:http";
import samlify from "samlify";

const { port, acs, entity_id: ours, key, certificate } = JSON.parse(process.env.IDENTITY_SERVER);
const origin = `http://127.0.0.1:${port}`;
const state = { current: "", people: {} };
const { binding } = samlify.Constants.namespace;

// The provider is not what is under test: it believes its requests.
samlify.setSchemaValidator({ validate: async () => "as it is" });

const text = (value) =>
  String(value).replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
const attribute = (name, values) =>
  `<saml:Attribute Name="${text(name)}" NameFormat="urn:oasis:names:tc:SAML:2.0:attrname-format:basic">${values
    .map((one) => `<saml:AttributeValue>${text(one)}</saml:AttributeValue>`)
    .join("")}</saml:Attribute>`;
const statement = (person) =>
  Object.entries(person)
    .map(([name, value]) => attribute(name, Array.isArray(value) ? value : [value]))
    .join("");

const template = (person) =>
  `<samlp:Response xmlns:samlp="urn:oasis:names:tc:SAML:2.0:protocol" xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion" ID="{ID}" Version="2.0" IssueInstant="{IssueInstant}" Destination="{Destination}" InResponseTo="{InResponseTo}"><saml:Issuer>{Issuer}</saml:Issuer><samlp:Status><samlp:StatusCode Value="{StatusCode}"/></samlp:Status><saml:Assertion ID="{AssertionID}" Version="2.0" IssueInstant="{IssueInstant}"><saml:Issuer>{Issuer}</saml:Issuer><saml:Subject><saml:NameID Format="{NameIDFormat}">{NameID}</saml:NameID><saml:SubjectConfirmation Method="urn:oasis:names:tc:SAML:2.0:cm:bearer"><saml:SubjectConfirmationData NotOnOrAfter="{SubjectConfirmationDataNotOnOrAfter}" Recipient="{SubjectRecipient}" InResponseTo="{InResponseTo}"/></saml:SubjectConfirmation></saml:Subject><saml:Conditions NotBefore="{ConditionsNotBefore}" NotOnOrAfter="{ConditionsNotOnOrAfter}"><saml:AudienceRestriction><saml:Audience>{Audience}</saml:Audience></saml:AudienceRestriction></saml:Conditions><saml:AuthnStatement AuthnInstant="{IssueInstant}"><saml:AuthnContext><saml:AuthnContextClassRef>urn:oasis:names:tc:SAML:2.0:ac:classes:Password</saml:AuthnContextClassRef></saml:AuthnContext></saml:AuthnStatement><saml:AttributeStatement>${statement(person)}</saml:AttributeStatement></saml:Assertion></samlp:Response>`;

const service = samlify.ServiceProvider({
  entityID: ours,
  wantAssertionsSigned: true,
  assertionConsumerService: [{ Binding: binding.post, Location: acs }],
});
const provider = samlify.IdentityProvider({
  entityID: `${origin}/metadata`,
  privateKey: key,
  signingCert: certificate,
  requestSignatureAlgorithm: "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256",
  singleSignOnService: [{ Binding: binding.redirect, Location: `${origin}/sso` }],
  loginResponseTemplate: { context: template({}) },
});

async function respond(query) {
  const { extract } = await provider.parseLoginRequest(service, "redirect", { query });
  const person = state.people[state.current];
  const now = new Date();
  const later = new Date(now.getTime() + 300_000).toISOString();
  const identifier = () => `_${crypto.randomUUID()}`;
  const { context } = await provider.createLoginResponse(
    service,
    { extract },
    "post",
    { email: state.current },
    (_given) => ({
      id: identifier(),
      context: samlify.SamlLib.replaceTagsByValue(template(person), {
        ID: identifier(),
        AssertionID: identifier(),
        Destination: acs,
        Audience: ours,
        SubjectRecipient: acs,
        Issuer: provider.entityMeta.getEntityID(),
        IssueInstant: now.toISOString(),
        ConditionsNotBefore: now.toISOString(),
        ConditionsNotOnOrAfter: later,
        SubjectConfirmationDataNotOnOrAfter: later,
        InResponseTo: extract.request.id,
        NameIDFormat: "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent",
        NameID: state.current,
        StatusCode: "urn:oasis:names:tc:SAML:2.0:status:Success",
      }),
    }),
  );
  return `<!doctype html><title>Provider</title><form method="post" action="${acs}"><input type="hidden" name="SAMLResponse" value="${context}"></form><script>document.forms[0].submit()</script>`;
}

http
  .createServer(async (request, response) => {
    const address = new URL(request.url, origin);
    if (request.method === "POST" && address.pathname === "/people") {
      let body = "";
      for await (const part of request) body += part;
      Object.assign(state, JSON.parse(body));
      response.end("{}");
    } else if (address.pathname === "/sso") {
      response.setHeader("Content-Type", "text/html");
      response.end(await respond(Object.fromEntries(address.searchParams)));
    } else {
      response.setHeader("Content-Type", "application/xml");
      response.end(provider.getMetadata());
    }
  })
  .listen(port, "127.0.0.1");
