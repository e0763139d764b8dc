import{a,b}from"./chunk-H3GJWL6W.js";import"./chunk-74N64566.js";import"./chunk-TPW2HJJ7.js";import"./chunk-UHTZOUWE.js";export{a as AlertList,b as Alerts};
