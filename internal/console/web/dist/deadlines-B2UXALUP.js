import{a,b}from"./chunk-UUKROTA2.js";import"./chunk-RITPE7ZX.js";import"./chunk-WSQBB7BD.js";import"./chunk-UHTZOUWE.js";export{b as Deadlines,a as Predicted};
