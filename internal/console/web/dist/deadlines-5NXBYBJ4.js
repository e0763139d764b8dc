import{a,b}from"./chunk-WNJ7XGA5.js";import"./chunk-IAP6O5DS.js";import"./chunk-Q4YHBQM5.js";import"./chunk-UHTZOUWE.js";export{b as Deadlines,a as Predicted};
