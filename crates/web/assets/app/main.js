// The dashboard begins here.
document.body.textContent = "dogwatch";
