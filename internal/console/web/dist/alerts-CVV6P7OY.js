import{a,b}from"./chunk-AGDKNPHA.js";import"./chunk-RITPE7ZX.js";import"./chunk-WSQBB7BD.js";import"./chunk-UHTZOUWE.js";export{a as AlertList,b as Alerts};
