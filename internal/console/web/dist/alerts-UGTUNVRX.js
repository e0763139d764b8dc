import{a,b}from"./chunk-BQEN2MUQ.js";import"./chunk-IAP6O5DS.js";import"./chunk-Q4YHBQM5.js";import"./chunk-UHTZOUWE.js";export{a as AlertList,b as Alerts};
